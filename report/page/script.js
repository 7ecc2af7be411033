"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, text, attributes = {}) => {
    const node = document.createElement(tag);
    node.textContent = text;
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const format = (value) => {
    if (value === null || value === undefined) return "-";
    if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e6)) return value.toExponential(2);
    return Math.abs(value) < 1000 ? String(Number(value.toPrecision(3))) : value.toFixed(0);
  };
  // A value and the ends of its interval, in as many digits as the width of the interval allows.
  const digits = (value, low, high) => {
    if (low === null || low === undefined || high === null || high === undefined) return [format(value)];
    if (!(high > low)) return [value, low, high].map(format);
    const places = Math.min(20, Math.max(0, 1 - Math.floor(Math.log10(high - low))));
    const alone = format(value);
    const short = (alone.split(".")[1] || "").length < places || alone.includes("e");
    return [short ? value.toFixed(places) : alone, low.toFixed(places), high.toFixed(places)];
  };

  // Theme: the system's, light or dark; remembered where the browser allows it.
  const themes = ["auto", "light", "dark"];
  const recall = () => { try { return localStorage.getItem("davylamp-theme") || "auto"; } catch { return "auto"; } };
  const toggle = make("button", "", { type: "button" });
  const wear = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    toggle.textContent = `Theme: ${theme}`;
    try { localStorage.setItem("davylamp-theme", theme); } catch { /* a file may have no storage */ }
  };
  let theme = recall();
  wear(theme);
  toggle.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    wear(theme);
  });
  document.getElementById("page-controls").append(toggle);

  // Tables: sort by a heading, filter by a text, copy as CSV, Markdown or LaTeX.
  const text = (cell) => {
    const clone = cell.cloneNode(true);
    all(".interval", clone).forEach((part) => part.remove());
    return clone.textContent.trim();
  };
  const value = (cell) => (cell.dataset.v === undefined ? text(cell) : Number(cell.dataset.v));
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sort = (table, place, heading) => {
    const down = heading.getAttribute("aria-sort") === "descending";
    const numeric = all(`tbody tr > :nth-child(${place + 1})[data-v]`, table).length > 0;
    // Numbers begin with the largest, texts with A.
    const first = numeric ? "descending" : "ascending";
    const now = heading.getAttribute("aria-sort");
    const order = now === null ? first : down ? "ascending" : "descending";
    all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = all("tbody tr", table).map((row) => [row, row.children[place]]);
    const known = rows.filter(([, cell]) => text(cell) !== "-" && text(cell) !== "");
    const unknown = rows.filter((row) => !known.includes(row));
    known.sort(([, a], [, b]) => sign * compare(value(a), value(b)));
    table.tBodies[0].append(...[...known, ...unknown].map(([row]) => row));
  };
  // What is shown is what is copied: no hidden row, no hidden column.
  const hiddenColumns = new WeakMap();
  const visible = (table, cells) => {
    const hidden = hiddenColumns.get(table) || new Set();
    return [...cells].filter((_, place) => !hidden.has(place));
  };
  const contents = (table, full) => {
    const heads = visible(table, all("thead th", table)).map((head) => text(head));
    const rows = all("tbody tr", table).filter((row) => !row.hidden).map((row) => visible(table, row.children));
    const wide = heads.map((_, place) => full && rows.some((cells) => cells[place].dataset.low !== undefined));
    const head = heads.flatMap((name, place) => (wide[place] ? [name, `${name} low`, `${name} high`] : [name]));
    const lines = rows.map((cells) => cells.flatMap((cell, place) => {
      const { v, low, high } = cell.dataset;
      const interval = low === undefined ? "" : ` [${format(Number(low))}, ${format(Number(high))}]`;
      if (!full) return [text(cell) + interval];
      const value = v === undefined ? text(cell) : v;
      return wide[place] ? [value, low ?? "", high ?? ""] : [value];
    }));
    return [head, ...lines];
  };
  const quote = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const latex = (cell) => {
    const named = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}" };
    return cell.replace(/[\\~^<>|&%$#_{}]/g, (sign) => named[sign] || `\\${sign}`);
  };
  const writers = {
    CSV: (table) => contents(table, true).map((line) => line.map(quote).join(",")).join("\n") + "\n",
    Markdown: (table) => {
      const [head, ...lines] = contents(table, false).map((line) => line.map((cell) => cell.replaceAll("|", "\\|")));
      return [head, head.map(() => "---"), ...lines].map((line) => `| ${line.join(" | ")} |`).join("\n") + "\n";
    },
    LaTeX: (table) => {
      const [head, ...lines] = contents(table, false).map((line) => `${line.map(latex).join(" & ")} \\\\`);
      const shape = "l".repeat(visible(table, table.tHead.rows[0].cells).length);
      return [`\\begin{tabular}{${shape}}`, "\\toprule", head, "\\midrule", ...lines, "\\bottomrule", "\\end{tabular}"].join("\n") + "\n";
    },
  };
  const copy = async (written) => {
    try {
      await navigator.clipboard.writeText(written);
    } catch { // a page from a file may not be allowed to: the old way
      const area = make("textarea", written);
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  const makeMenu = (label, parts) => {
    const menu = make("details", "", { class: "menu" });
    const inside = make("div", "");
    inside.append(...parts);
    menu.append(make("summary", label), inside);
    return menu;
  };
  const phone = matchMedia("(max-width: 30rem)");
  const chooseColumns = (box, table) => {
    const heads = all("thead th", table);
    const spare = heads.some((head) => "spare" in head.dataset || "wide" in head.dataset);
    if (heads.length < 7 && !spare) return null;
    const hidden = new Set();
    const sheet = make("style", "");
    const show = () => {
      sheet.textContent = [...hidden].map((place) => `#${CSS.escape(box.id)} tr > :nth-child(${place + 1})`).join(",");
      if (hidden.size) sheet.textContent += "{display:none}";
      cue(box);
    };
    hiddenColumns.set(table, hidden);
    const inputs = heads.slice(1).map((head, index) => {
      const input = make("input", "", { type: "checkbox" });
      const set = (shown) => { input.checked = shown; hidden[shown ? "delete" : "add"](index + 1); };
      set(!("spare" in head.dataset || ("wide" in head.dataset && phone.matches)));
      if ("wide" in head.dataset) phone.addEventListener("change", () => { set(!phone.matches); show(); });
      input.addEventListener("change", () => { set(input.checked); show(); });
      return { input, set, first: input.checked, name: head.textContent.trim() };
    });
    const labels = inputs.map(({ input, name }) => {
      const label = make("label", "");
      label.append(input, name);
      return label;
    });
    const every = make("button", "All columns", { type: "button" });
    every.addEventListener("click", () => { inputs.forEach(({ set }) => set(true)); show(); });
    const usual = make("button", "The usual ones", { type: "button" });
    usual.addEventListener("click", () => { inputs.forEach(({ set, first }) => set(first)); show(); });
    box.append(sheet);
    show();
    return makeMenu("Columns", [every, ...(spare ? [usual] : []), ...labels]);
  };
  // A table wider than its frame says so, on the side where there is more.
  const cue = (box) => {
    const frame = box.querySelector(".frame");
    const inside = frame.firstElementChild;
    const { scrollLeft, scrollWidth, clientWidth, scrollTop, scrollHeight, clientHeight } = inside;
    const sides = [
      scrollLeft > 1 && "left", scrollLeft + clientWidth < scrollWidth - 1 && "right",
      scrollTop + clientHeight < scrollHeight - 1 && "down",
    ].filter(Boolean);
    frame.dataset.more = sides.join(" ");
  };
  const equip = (box) => {
    const table = box.querySelector("table");
    const rows = all("tbody tr", table);
    all("thead th", table).forEach((heading, place) => {
      const button = make("button", heading.textContent.trim(), { type: "button" });
      if (heading.title) button.dataset.explain = heading.title;
      heading.replaceChildren(button);
      button.addEventListener("click", () => sort(table, place, heading));
      const column = rows.map((row) => row.children[place]).filter((cell) => text(cell) !== "");
      if (column.length && column.every((cell) => cell.classList.contains("number"))) heading.classList.add("number");
    });
    const tools = make("div", "", { class: "tools" });
    const said = make("span", "", { class: "said", role: "status" });
    const name = table.caption.textContent;
    if (rows.length > 7) {
      const input = make("input", "", { type: "search", placeholder: "Filter rows", "aria-label": `Filter: ${name}` });
      input.addEventListener("input", () => {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        rows.forEach((row) => { row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word)); });
        said.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
      });
      tools.append(input);
      box.classList.add("filtered");
    }
    const columns = chooseColumns(box, table);
    const copies = Object.entries(writers).map(([kind, write]) => {
      const button = make("button", kind, { type: "button", "aria-label": `Copy as ${kind}: ${name}` });
      button.addEventListener("click", async () => {
        box.dataset.copied = write(table);
        await copy(box.dataset.copied);
        said.textContent = `copied as ${kind}`;
        button.closest("details").open = false;
      });
      return button;
    });
    if (columns) tools.append(columns);
    tools.append(makeMenu("Copy", copies), said);
    box.prepend(tools);
    const scroll = box.querySelector(".scroll");
    scroll.addEventListener("scroll", () => cue(box), { passive: true });
    new ResizeObserver(() => cue(box)).observe(scroll);
  };
  all(".table").forEach(equip);
  document.addEventListener("click", (event) => all(".menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; }));

  // Leaderboard: any metric in the same cells.
  all(".heat").forEach((box) => {
    const data = JSON.parse(box.querySelector("script").textContent);
    const cells = all("tbody tr", box).map((row) => all("td", row));
    const legend = box.querySelector(".direction");
    const select = box.querySelector("select");
    const show = (symbol) => {
      const values = data.values[symbol];
      const about = data.about[symbol];
      const known = values.flat().filter((entry) => entry && entry[0] !== null).map((entry) => entry[0]);
      const low = about.low ?? Math.min(...known);
      const high = about.high ?? Math.max(...known);
      cells.forEach((row, i) => row.forEach((cell, j) => {
        const entry = values[i][j];
        cell.replaceChildren(entry ? digits(...entry)[0] : "-");
        for (const name of ["v", "low", "high"]) delete cell.dataset[name];
        cell.removeAttribute("style");
        cell.removeAttribute("title");
        cell.classList.add("number");
        if (!entry || entry[0] === null) return;
        cell.dataset.v = entry[0];
        cell.style.setProperty("--heat", high > low ? (entry[0] - low) / (high - low) : 0.5);
        if (entry[1] === null || entry[2] === null) return;
        [, cell.dataset.low, cell.dataset.high] = entry;
        cell.append(make("span", digits(...entry).slice(1).join(" to "), { class: "interval" }));
      }));
      all("thead th", box).forEach((head) => head.removeAttribute("aria-sort"));
      legend.textContent = `${about.direction || "neither direction is better for the model"}; stronger colour means higher`;
    };
    select.addEventListener("change", () => show(select.value));
    box.querySelector(".choice").hidden = false;
    // Rows keep their cells when they are sorted, so `cells` stays true.
    show(data.first);
  });

  // Gallery: by model, attack, image, outcome; fooled by one attack and not by another.
  all(".gallery").forEach((box) => {
    const cards = all(".card", box);
    const fields = all("select[data-field]", box);
    const [by, not] = all("select[data-pair]", box);
    const outcome = (card, attack) => cards.some((other) => other.dataset.attack === attack && other.dataset.model === card.dataset.model
      && other.dataset.image === card.dataset.image && (other.dataset.outcome === "fooled") === (attack === by.value));
    const update = () => {
      let count = 0;
      for (const card of cards) {
        const chosen = fields.every((field) => !field.value || card.dataset[field.dataset.field] === field.value);
        const named = [by.value, not.value].filter(Boolean);
        const paired = named.every((attack) => outcome(card, attack)) && (!named.length || named.includes(card.dataset.attack));
        card.hidden = !(chosen && paired);
        count += !card.hidden;
      }
      box.querySelector(".shown").textContent = `${count} of ${cards.length} shown`;
    };
    all("select", box).forEach((select) => select.addEventListener("change", update));
    box.querySelector(".choices").hidden = false;
    update();
  });

  // What a heading or a cell means, for the keyboard as well as for the pointer.
  const explain = document.getElementById("explain");
  const tell = (target) => {
    const explained = target.closest && target.closest("[data-explain]");
    explain.textContent = explained ? explained.dataset.explain : "";
    explain.hidden = !explained;
  };
  document.addEventListener("focusin", (event) => tell(event.target));
  document.addEventListener("focusout", () => { explain.hidden = true; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { explain.hidden = true; all(".menu[open]").forEach((menu) => { menu.open = false; }); } });

  // Navigation: closed on a narrow screen, the section in view is marked.
  const contentsList = document.querySelector("nav details");
  const narrow = matchMedia("(max-width: 60rem)");
  const fitContents = () => { contentsList.open = !narrow.matches; };
  narrow.addEventListener("change", fitContents);
  fitContents();
  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  all("main > section").forEach((section) => watch.observe(section));
  addEventListener("beforeprint", () => all("details:not(.menu)").forEach((fold) => { fold.open = true; }));
})();
