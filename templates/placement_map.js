// The maps: zoom, search, and the GPUs of a node that is chosen in the overview.

const SVG = "http://www.w3.org/2000/svg";
const MOST_HITS = 200;

/** Buttons and keys that draw a map larger or smaller. */
function zoomable(bar) {
  const map = document.getElementById(bar.dataset.for);
  const own = Number(map.getAttribute("width"));
  const zoom = (by) => {
    const now = map.getBoundingClientRect().width / own;
    const scale = Math.min(8, Math.max(0.2, now * by));
    map.style.width = by ? `${Math.round(own * scale)}px` : "";
    map.style.maxWidth = by ? "none" : "";
  };
  for (const button of bar.querySelectorAll("button")) {
    button.addEventListener("click", () => zoom(Number(button.dataset.by)));
  }
  map.parentElement.addEventListener("keydown", (event) => {
    const by = { "+": 1.5, "=": 1.5, "-": 0.6667, 0: 0 }[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    zoom(by);
  });
  bar.hidden = false;
}

/** Overview of all nodes: which cell is which node. */
class Sweep {
  constructor(map, table, panel) {
    Object.assign(this, { map, table, panel });
    const number = (name) => Number(map.dataset[name]);
    [this.left, this.top, this.pitch, this.columns] = ["left", "top", "pitch", "columns"].map(number);
    const slots = map.dataset.slots ? map.dataset.slots.split(" ").map(Number) : null;
    this.slotOf = slots ? (node) => slots[node] : (node) => node;
    const nodes = slots && new Map(slots.map((slot, node) => [slot, node]));
    this.nodeAt = slots ? (slot) => nodes.get(slot) : (slot) => slot;
    this.rings = document.createElementNS(SVG, "g");
    map.append(this.rings);
    this.hint = make("p", { class: "small" }, say("walk"));
    map.parentElement.after(this.hint);
    map.addEventListener("click", async (event) => {
      const node = await this.under(event);
      if (node !== null) this.show(node, [node]);
    });
    map.addEventListener("pointermove", async (event) => {
      const node = table.ranks ? await this.under(event) : null;
      this.hint.textContent = node === null ? say("walk") : table.ranks.nodes[node];
    });
  }

  /** Node under the pointer, or null. */
  async under(event) {
    const box = this.map.getBoundingClientRect();
    const scale = Number(this.map.getAttribute("width")) / box.width;
    const column = Math.floor(((event.clientX - box.left) * scale - this.left) / this.pitch);
    const row = Math.floor(((event.clientY - box.top) * scale - this.top) / this.pitch);
    const ranks = await this.table.open();
    const node = this.nodeAt(row * this.columns + column);
    const inside = column >= 0 && column < this.columns && row >= 0 && node !== undefined;
    return ranks && inside && node < ranks.seen.length ? node : null;
  }

  /** Put a ring around the cells of these nodes and show one of them. */
  show(node, hits) {
    const rings = hits.slice(0, MOST_HITS).map((hit) => {
      const slot = this.slotOf(hit);
      const ring = document.createElementNS(SVG, "rect");
      const place = { x: this.left + (slot % this.columns) * this.pitch, y: this.top + Math.floor(slot / this.columns) * this.pitch };
      const size = { x: place.x - 4, y: place.y - 4, width: this.pitch + 6, height: this.pitch + 6, rx: 3 };
      for (const [name, value] of Object.entries(size)) ring.setAttribute(name, value);
      ring.setAttribute("class", hit === node ? "hit chosen" : "hit");
      return ring;
    });
    this.rings.replaceChildren(...rings);
    this.fill(node);
  }

  /** The panel of a node: its GPUs and their ranks. */
  fill(node) {
    const { ranks } = this.table;
    const head = make("h3", { tabindex: -1 }, say("node_panel", ranks.nodes[node]));
    const state = make("p", {}, say("node_state", node + 1, ranks.seen.length, say(`status_${ranks.status(node)}`)));
    const step = (by, word) => {
      const button = make("button", { type: "button", "data-step": by }, say(word));
      button.disabled = !(node + by >= 0 && node + by < ranks.seen.length);
      button.addEventListener("click", () => {
        this.show(node + by, [node + by]);
        const same = this.panel.querySelector(`[data-step="${by}"]`);
        (same.disabled ? this.panel.querySelector("h3") : same).focus();
      });
      return button;
    };
    const rows = make("button", { type: "button" }, say("in_table"));
    rows.addEventListener("click", () => this.table.showNode(ranks.nodes[node]));
    const bar = make("div", { class: "filters" }, step(-1, "previous"), step(1, "next"), rows);
    this.panel.replaceChildren(head, state, this.gpus(node), bar);
    this.panel.hidden = false;
  }

  gpus(node) {
    const { ranks } = this.table;
    const rows = ranks.on(node);
    if (!rows.length) return make("p", {}, say("no_ranks"));
    const names = ["gpu", "rank", "stage", "group", "replica", "nic", "marked_by"];
    const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, say(name))));
    const lines = rows.map((row) => {
      const mark = ranks.marks.get(row);
      const marked = mark ? `${SIGN[mark.severity]} ${[...mark.rules].join(", ")}` : "";
      const number = ranks.number[row] < 0 ? say("unknown") : ranks.number[row];
      const values = [number, ranks.rank[row], ranks.stage[row], ranks.group[row], ranks.replica[row], ranks.nics(row), marked];
      const cells = values.map((value, place) => make(place ? "td" : "th", place ? {} : { scope: "row" }, String(value)));
      return make("tr", { class: mark?.severity ?? null }, ...cells);
    });
    const table = make("table", { class: "ranks" }, make("thead", {}, head), make("tbody", {}, ...lines));
    return make("div", { class: "scroll", role: "region", "aria-label": say("node_panel", ranks.nodes[node]), tabindex: 0 }, table);
  }
}

/** Nodes that a search means: of a rank, by name, or by what the table shows of their ranks. */
function nodesOf(ranks, text, table) {
  const pairs = parseRanges(text);
  if (pairs) {
    const rows = [...ranks.rank.keys()].filter((row) => within(pairs, ranks.rank[row]) && ranks.node[row] >= 0);
    return [...new Set(rows.map((row) => ranks.node[row]))];
  }
  const named = [...ranks.seen.keys()].filter((node) => ranks.nodes[node].toLowerCase().includes(text));
  if (named.length) return named;
  const columns = table.columns.filter((column) => ["uuid", "bus", "nic", "domain"].includes(column.name));
  const rows = [...ranks.rank.keys()].filter((row) => columns.some((one) => one.text(row).toLowerCase().includes(text)));
  return [...new Set(rows.map((row) => ranks.node[row]))].filter((node) => node >= 0);
}

/** Mark the cells and boxes of a drawing that a search means. */
function findIn(drawing, text) {
  const pairs = parseRanges(text);
  const hits = [...drawing.querySelectorAll("g.cell, g.node")].filter((one) => {
    const hit = text && (pairs
      ? (one.dataset.r ?? "").split(" ").some((rank) => rank && within(pairs, Number(rank)))
      : one.querySelector("title").textContent.toLowerCase().includes(text));
    one.classList.toggle("hit", Boolean(hit));
    return hit;
  });
  if (hits.length) {
    const frame = drawing.parentElement;
    const [box, view] = [hits[0].getBoundingClientRect(), frame.getBoundingClientRect()];
    frame.scrollLeft += box.left - view.left - view.width / 2;
  }
  return hits.length;
}

/** The search above the maps of one placement. */
function finder(root) {
  const place = Number(root.dataset.map);
  const [input, button, status] = ["find", "find-go", "find-status"].map((name) => document.getElementById(`${name}-${place}`));
  const [map, drawing] = ["sweep", "detail"].map((name) => document.getElementById(`${name}-${place}`));
  const table = tables[place];
  const sweep = map && new Sweep(map, table, document.getElementById(`node-panel-${place}`));
  const find = async () => {
    const text = input.value.trim().toLowerCase();
    let count = drawing ? findIn(drawing, text) : 0;
    const ranks = sweep && text ? await table.open() : null;
    if (ranks) {
      const nodes = nodesOf(ranks, text, table);
      count = Math.max(count, nodes.length);
      if (nodes.length) sweep.show(nodes[0], nodes);
    }
    status.textContent = !text ? "" : count ? say("found", count) : say("found_none");
  };
  button.addEventListener("click", find);
  input.addEventListener("keydown", (event) => event.key === "Enter" && find());
  input.addEventListener("search", find);
  root.hidden = false;
}

document.querySelectorAll(".zoom").forEach(zoomable);
document.querySelectorAll(".finder").forEach(finder);
addEventListener("hashchange", follow);
follow();
