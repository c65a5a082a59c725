(() => {
  "use strict";
  document.documentElement.classList.add("js");

  const compare = (a, b) => {
    const x = parseFloat(a), y = parseFloat(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  for (const table of document.querySelectorAll("table[data-sort]")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => {
      if (head.hasAttribute("data-fixed")) return;
      head.tabIndex = 0;
      const sort = () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
        const rows = [...body.rows].sort((a, b) => compare(key(a), key(b)));
        body.append(...(down ? rows.reverse() : rows));
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    });
  }

  for (const block of document.querySelectorAll("[data-filter]")) {
    const tools = block.querySelector(".tools");
    if (!tools) continue;
    const items = [...block.querySelectorAll(".item")], buttons = [...tools.querySelectorAll("button")];
    const search = tools.querySelector("input"), count = tools.querySelector("output");
    let shown = "all";
    const update = () => {
      const words = search.value.toLowerCase();
      let kept = 0;
      for (const item of items) {
        const match = (shown === "all" || item.dataset.change === shown) && item.textContent.toLowerCase().includes(words);
        item.hidden = !match;
        kept += match;
      }
      count.textContent = `${kept} of ${items.length} items`;
    };
    for (const button of buttons) {
      button.addEventListener("click", () => {
        shown = button.dataset.show;
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        update();
      });
    }
    search.addEventListener("input", update);
    tools.hidden = false;
    update();
  }

  const short = (value) => {
    const size = Math.abs(value);
    const text = size && (size < 1e-4 || size >= 1e7) ? value.toExponential(2) : String(+value.toPrecision(4));
    return text.replace("-", "\u2212");
  };
  for (const plot of document.querySelectorAll("svg[data-role=curves]")) {
    const [xLow, xHigh, xStart, xStop] = plot.dataset.x.split(" ").map(Number);
    const [yLow, yHigh, yStart, yStop] = plot.dataset.y.split(" ").map(Number);
    const toX = (p) => xLow + ((p - xStart) / (xStop - xStart)) * (xHigh - xLow);
    const toY = (p) => {
      const share = (p - yStart) / (yStop - yStart);
      return plot.dataset.log ? 10 ** (Math.log10(yLow) + share * Math.log10(yHigh / yLow)) : yLow + share * (yHigh - yLow);
    };
    const series = [...plot.querySelectorAll("g[data-series]")].map((group) => ({
      name: group.dataset.series,
      points: [...group.querySelectorAll("polyline")].flatMap((l) => l.getAttribute("points").split(" ").map((p) => p.split(",").map(Number))),
    })).filter((one) => one.points.length);
    if (!series.length) continue;
    const box = plot.parentElement, tip = document.createElement("div");
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    tip.className = "tip";
    cursor.setAttribute("class", "cursor");
    const leave = () => { tip.remove(); cursor.remove(); };
    plot.addEventListener("pointermove", (event) => {
      const area = plot.getBoundingClientRect(), scale = plot.viewBox.baseVal.width / area.width;
      const at = (event.clientX - area.left) * scale;
      const near = series.map((one) => one.points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a)));
      const x = near.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a))[0];
      const lines = [`${plot.dataset.label} ${short(Math.round(toX(x)))}`];
      series.forEach((one, i) => { if (Math.abs(near[i][0] - x) < 12) lines.push(`${one.name} ${short(toY(near[i][1]))}`); });
      tip.replaceChildren(...lines.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
      for (const [name, value] of Object.entries({ x1: x, x2: x, y1: yStart, y2: yStop })) cursor.setAttribute(name, value);
      plot.append(cursor);
      box.append(tip);
      const half = tip.offsetWidth / 2, left = x / scale + plot.getBoundingClientRect().left - box.getBoundingClientRect().left;
      tip.style.left = `${Math.min(Math.max(left, half), box.clientWidth - half)}px`;
      tip.style.top = `${yStop / scale + area.top - box.getBoundingClientRect().top}px`;
    });
    plot.addEventListener("pointerleave", leave);
  }
})();
