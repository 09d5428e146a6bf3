// All ranks: unpacked when they are first wanted, drawn a screenful at a time, sorted, searched, copied.

const ROW = 30; // Height of a row in CSS pixels; report.css says the same.
const SPARE = 8; // Rows drawn above and below the window.
const TALL = 512; // Height of the window, as report.css limits it: it is less before anything is drawn.
const [ABSENT, SAME, NODE_ONLY, UNKNOWN, DIFFERS] = [0, 1, 2, 3, 4];
const DASH = "–";

/** Numbers from their differences. */
function unstep(steps) {
  const numbers = new Int32Array(steps.length);
  let sum = 0;
  for (let place = 0; place < steps.length; place += 1) numbers[place] = sum += steps[place];
  return numbers;
}

/** Text of others without what could move or reverse a line; what is packed for this table is so already. */
function plain(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu, "").slice(0, 100);
}

/** The document of packed text. */
async function unpack(text) {
  const letters = atob(text);
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** A list of the report that the page holds, from its columns: topocheck/render/columns.py says how. */
function listOf(value, texts) {
  if (!Array.isArray(value)) return decoded(value, texts);
  const [kind, first, ...rest] = value;
  if (kind === 1) {
    const columns = rest.map((column) => listOf(column, texts));
    return columns[0].map((_, row) => Object.fromEntries(first.map((key, place) => [key, columns[place][row]])));
  }
  if (kind === 2) {
    const items = listOf(rest[0], texts);
    let end = 0;
    return listOf(first, texts).map((length) => items.slice(end, (end += length)));
  }
  if (kind === 3) return [...unstep(value.slice(1))];
  if (kind === 4) return listOf(first, texts).map((place) => (place < 0 ? null : texts[place]));
  if (kind === 5) return Array(rest[0]).fill(first);
  return value.slice(1).map((item) => listOf(item, texts));
}

/** One value of that report; of an object its parts. */
function decoded(value, texts) {
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, listOf(item, texts)]));
}

/** One column of a table, alone: the others stay packed. */
function columnOf(table, key) {
  return table[0] === 1 ? table[2 + table[1].indexOf(key)] : null;
}

/** UUIDs of the GPUs of each node by ordinal, from the report that the page holds; world is its place or "". */
async function readUuids(world) {
  const block = document.getElementById("report");
  const nodes = (placement) => placement.nodes.map((node) => new Map(node.gpus.map((gpu) => [gpu.ordinal, gpu.uuid])));
  const chosen = (report) => (world === "" ? report.placement : report.worlds[Number(world)].placement);
  if (block.dataset.coding === "json") return nodes(chosen(JSON.parse(block.textContent)));
  const [texts, report] = await unpack(JSON.parse(block.textContent));
  const gpus = world === "" ? columnOf(report.placement.nodes, "gpus") : null;
  if (gpus?.[0] !== 2 || gpus[2][0] !== 1) {
    const part = world === "" ? { placement: report.placement } : { worlds: report.worlds };
    return nodes(chosen(decoded(part, texts)));
  }
  const [ordinals, uuids] = ["ordinal", "uuid"].map((key) => listOf(columnOf(gpus[2], key), texts));
  let end = 0;
  return listOf(gpus[1], texts).map((length) => {
    const start = end;
    end += length;
    return new Map(ordinals.slice(start, end).map((ordinal, place) => [ordinal, uuids[start + place]]));
  });
}

/** Ranks of one placement as columns. */
class Ranks {
  constructor(packed, uuids) {
    this.packed = packed;
    this.uuids = uuids;
    this.nodes = packed.nodes;
    for (const name of ["rank", "stage", "replica", "group", "local", "node", "ordinal", "number"]) {
      this[name] = unstep(packed[name]);
    }
    this.count = this.rank.length;
    this.shape = unstep(packed.shape);
    this.seen = unstep(packed.seen);
    this.layers = [packed.layers[0], unstep(packed.layers[1])];
    this.domain = [packed.domain[0], unstep(packed.domain[1])];
    this.bus = [packed.bus[0], unstep(packed.bus[1])];
    this.loose = new Map(packed.loose);
    this.place = new Map();
    this.rank.forEach((rank, row) => this.place.set(rank, row));
    this.marks = this.readMarks();
    this.byNode = null;
  }

  /** Worst severity and rules of each marked row. */
  readMarks() {
    const found = new Map();
    const marks = [...this.packed.marks];
    marks.sort((a, b) => Object.keys(SIGN).indexOf(a[1]) - Object.keys(SIGN).indexOf(b[1]));
    for (const [rule, severity, , ranks] of marks) {
      for (const rank of unstep(ranks)) {
        const row = this.place.get(rank);
        if (row === undefined) continue;
        if (!found.has(row)) found.set(row, { severity, rules: new Set() });
        found.get(row).rules.add(rule);
      }
    }
    return found;
  }

  /** Rows on a node. */
  on(node) {
    if (!this.byNode) {
      this.byNode = Array.from(this.nodes, () => []);
      this.node.forEach((place, row) => place >= 0 && this.byNode[place].push(row));
    }
    return this.byNode[node];
  }

  /** Worst status of a node. */
  status(node) {
    const worst = this.on(node).map((row) => this.marks.get(row)?.severity);
    const marked = Object.keys(SIGN).find((severity) => worst.includes(severity));
    return marked ?? (this.seen[node] === 1 ? "clear" : "unseen");
  }

  uuid(row) {
    const seat = this.uuids[this.node[row]]?.get(this.ordinal[row]);
    return seat ? plain(seat) : this.loose.get(this.rank[row]) ?? DASH;
  }

  nics(row) {
    const shape = this.node[row] < 0 ? -1 : (this.shape[this.node[row]] ?? -1);
    return (shape < 0 ? [] : (this.packed.near[shape][this.ordinal[row]] ?? [])).join(", ") || DASH;
  }

  busOf(row) {
    if (this.node[row] < 0 || this.node[row] >= this.bus[1].length) return DASH;
    return this.bus[0][this.bus[1][this.node[row]]][this.ordinal[row]] ?? DASH;
  }

  /** Columns of the table: name, title, text of a row, and the number that it is sorted by, if it has one. */
  columns() {
    const number = (values, less = 0) => (row) => (values[row] < less ? DASH : String(values[row]));
    const range = ([first, end]) => (first >= end ? DASH : first + 1 === end ? `${first}` : `${first}..${end - 1}`);
    const layers = this.layers[0].map((pair) => (pair ? range(pair) : DASH));
    const column = (name, text, order = null) => ({ name, title: say(name), text, order });
    const found = [column("rank", number(this.rank), (row) => this.rank[row])];
    if (this.marks.size) found.push(column("marked_by", (row) => [...(this.marks.get(row)?.rules ?? [])].join(", ")));
    for (const [axis, steps] of this.packed.axes) {
      const values = unstep(steps);
      if (values.every((value, row) => value === this.stage[row])) continue;
      found.push({ name: `axis ${axis}`, title: axis, text: number(values), order: (row) => values[row] });
    }
    found.push(
      column("stage", number(this.stage), (row) => this.stage[row]),
      column("layers", (row) => layers[this.layers[1][row]], (row) => this.layers[0][this.layers[1][row]]?.[0] ?? -1),
      column("node", (row) => this.nodes[this.node[row]] ?? say("unknown")),
      column("local", number(this.local), (row) => this.local[row]),
      column("gpu", number(this.number), (row) => this.number[row]),
      column("nic", (row) => this.nics(row)),
    );
    if (this.domain[0].some(Boolean)) {
      found.push(column("domain", (row) => this.domain[0][this.domain[1][this.node[row]]] ?? DASH));
    }
    for (const [basis, told] of this.packed.columns) found.push(column(basis, this.told(told)));
    found.push(column("bus", (row) => this.busOf(row)));
    found.push(column("uuid", (row) => this.uuid(row)));
    return found;
  }

  /** What one of the columns predicted, claimed and observed says of a row. */
  told({ state, source, other }) {
    const states = unstep(state);
    const sources = unstep(source[1]);
    const elsewhere = new Map(other.map(([row, node, gpu]) => [row, say("elsewhere", node || say("unknown"), gpu || say("unknown"))]));
    const words = { [SAME]: say("as_placed"), [NODE_ONLY]: say("node_as_placed"), [UNKNOWN]: say("unknown") };
    const text = (row) => {
      if (states[row] === ABSENT) return DASH;
      return say("source", states[row] === DIFFERS ? elsewhere.get(row) : words[states[row]], source[0][sources[row]]);
    };
    text.differs = (row) => states[row] === DIFFERS;
    return text;
  }
}

/** Text that a spreadsheet takes for text: no formula, quotes doubled. */
function cell(text) {
  const safe = /^[=+\-@\t\r]/.test(text) && text !== "-" ? `'${text}` : text;
  return /[",\r\n']/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

class RankTable {
  constructor(place) {
    this.root = document.getElementById(`all-ranks-${place}`);
    this.block = document.getElementById(`packed-${place}`);
    this.note = make("p", { role: "status", class: "small" });
    this.root.append(this.note);
    this.root.hidden = false;
    // The rows that stand in the page are for paper from here on: not laid out, they cost no time.
    this.first = this.root.nextElementSibling;
    this.first.classList.add("paper");
    this.opening = null;
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) this.open();
    }, { rootMargin: "600px" });
    seen.observe(this.root);
    this.open = this.open.bind(this);
    this.stop = () => seen.disconnect();
  }

  /** Unpack and draw, once; resolves to the ranks, or null where the browser cannot. */
  open() {
    this.opening ??= this.read();
    return this.opening;
  }

  async read() {
    this.stop();
    this.note.textContent = say("reading");
    try {
      this.ranks = new Ranks(await unpack(this.block.textContent), await readUuids(this.block.dataset.world));
    } catch (error) {
      this.note.textContent = say("unreadable", error.message);
      this.first.classList.remove("paper");
      return null;
    }
    this.columns = this.ranks.columns();
    this.order = Uint32Array.from(this.ranks.rank.keys());
    this.view = this.order;
    this.sorted = { column: null, down: false };
    this.build();
    this.update();
    return this.ranks;
  }

  build() {
    this.where = make("select", {}, make("option", { value: "" }, say("any_column")));
    this.columns.forEach((column, place) => this.where.append(make("option", { value: place }, column.title)));
    this.query = make("input", { type: "search", size: 28, autocomplete: "off", spellcheck: "false" });
    this.marked = make("input", { type: "checkbox" });
    this.differing = make("input", { type: "checkbox" });
    const clear = make("button", { type: "button" }, say("clear"));
    const copy = make("button", { type: "button" }, say("copy"));
    const bar = make("div", { class: "filters", role: "search", "aria-label": say("table") },
      make("label", {}, say("search"), " ", this.query), make("label", {}, say("search_in"), " ", this.where));
    if (this.ranks.marks.size) bar.append(make("label", {}, this.marked, " ", say("only_marked")));
    if (this.columns.some((column) => column.text.differs)) {
      bar.append(make("label", {}, this.differing, " ", say("only_differing")));
    }
    bar.append(clear, copy);
    this.query.addEventListener("input", later(150, () => this.update()));
    for (const control of [this.where, this.marked, this.differing]) control.addEventListener("change", () => this.update());
    clear.addEventListener("click", () => this.reset());
    copy.addEventListener("click", () => this.copy());
    this.root.replaceChildren(bar, this.note, ...this.hints(), this.frame());
  }

  /** What the table leaves out, and how to have it. */
  hints() {
    const words = [];
    const known = this.ranks.rank.reduce((count, _, row) => count + (this.ranks.uuid(row) !== DASH), 0);
    if (known && known < this.ranks.count) words.push(say("no_identities"));
    return words.map((text) => make("p", { class: "small" }, text));
  }

  /** The table with its head; widths stand fast, whichever rows are drawn. */
  frame() {
    const head = make("tr", { "aria-rowindex": 1 });
    const widths = make("colgroup");
    let total = 0;
    for (const column of this.columns) {
      const button = make("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sort(column));
      column.head = make("th", { scope: "col", "aria-sort": "none" }, button);
      head.append(column.head);
      const width = this.width(column);
      total += width;
      const col = make("col");
      col.style.width = `${width}ch`;
      widths.append(col);
    }
    this.body = make("tbody");
    this.table = make("table", { class: "ranks", "aria-label": say("table"), "aria-rowcount": this.ranks.count + 1 },
      widths, make("thead", {}, head), this.body);
    this.table.style.width = `${total}ch`;
    this.window = make("div", { class: "scroll window", role: "region", "aria-label": say("table"), tabindex: 0 }, this.table);
    let waits = false;
    this.window.addEventListener("scroll", () => {
      if (waits) return;
      waits = true;
      requestAnimationFrame(() => {
        waits = false;
        this.draw();
      });
    });
    return this.window;
  }

  /** Width of a column in characters, by its title and a sample of its rows. */
  width(column) {
    const step = Math.max(1, Math.floor(this.ranks.count / 400));
    let most = column.title.length + 3;
    for (let row = 0; row < this.ranks.count; row += step) most = Math.max(most, column.text(row).length);
    for (const row of this.ranks.marks.keys()) most = Math.max(most, column.text(row).length);
    return Math.min(most, 44) + 4;
  }

  sort(column) {
    const { sorted } = this;
    const down = sorted.column === column && !sorted.down;
    const key = column.order ?? this.rankTexts(column);
    const keys = Float64Array.from(this.ranks.rank, (_, row) => key(row));
    const sign = down ? -1 : 1;
    this.order = Uint32Array.from(this.ranks.rank.keys()).sort((a, b) => sign * (keys[a] - keys[b]) || a - b);
    for (const one of this.columns) one.head.setAttribute("aria-sort", "none");
    column.head.setAttribute("aria-sort", down ? "descending" : "ascending");
    this.sorted = { column, down };
    this.update();
  }

  /** Place of each text in the order of all texts: numbers in them count as numbers while they are few. */
  rankTexts(column) {
    const texts = Array.from(this.ranks.rank, (_, row) => column.text(row));
    const distinct = [...new Set(texts)];
    if (distinct.length <= 20000) distinct.sort(new Intl.Collator("en", { numeric: true }).compare);
    else distinct.sort();
    const places = new Map(distinct.map((text, place) => [text, place]));
    return (row) => places.get(texts[row]);
  }

  /** Whether a row has what is searched for. */
  matcher() {
    const text = this.query.value.trim().toLowerCase();
    if (!text) return null;
    const column = this.columns[this.where.value];
    const ranges = !column || column.name === "rank" ? parseRanges(text) : null;
    if (ranges) return (row) => within(ranges, this.ranks.rank[row]);
    if (column) return (row) => column.text(row).toLowerCase().includes(text);
    this.texts ??= Array.from(this.ranks.rank, (_, row) => this.columns.map((one) => one.text(row)).join("\n").toLowerCase());
    return (row) => this.texts[row].includes(text);
  }

  update() {
    const tests = [this.matcher()];
    if (this.marked.checked) tests.push((row) => this.ranks.marks.has(row));
    if (this.differing.checked) {
      const told = this.columns.filter((column) => column.text.differs);
      tests.push((row) => told.some((column) => column.text.differs(row)));
    }
    const active = tests.filter(Boolean);
    this.view = active.length ? this.order.filter((row) => active.every((test) => test(row))) : this.order;
    this.table.setAttribute("aria-rowcount", this.view.length + 1);
    this.note.textContent = say("rows", this.view.length, this.ranks.packed.world);
    this.window.scrollTop = 0;
    this.drawn = null;
    this.draw();
  }

  reset() {
    this.query.value = "";
    this.where.value = "";
    this.marked.checked = this.differing.checked = false;
    this.update();
  }

  /** Draw the rows that the window shows, and space for the others. */
  draw() {
    const first = Math.max(0, Math.floor(this.window.scrollTop / ROW) - SPARE);
    const last = Math.min(this.view.length, first + Math.ceil(TALL / ROW) + 2 * SPARE);
    if (this.drawn === `${first} ${last}`) return;
    this.drawn = `${first} ${last}`;
    const rows = [];
    for (let place = first; place < last; place += 1) rows.push(this.row(this.view[place], place));
    this.body.replaceChildren(this.space(first), ...rows, this.space(this.view.length - last));
  }

  space(rows) {
    const line = make("tr", { class: "space", "aria-hidden": "true" }, make("td", { colspan: this.columns.length }));
    line.style.height = `${rows * ROW}px`;
    line.hidden = rows === 0;
    return line;
  }

  row(row, place) {
    const mark = this.ranks.marks.get(row);
    const line = make("tr", { "aria-rowindex": place + 2, class: mark?.severity ?? null });
    if (this.ranks.rank[row] === this.target) line.classList.add("target");
    this.columns.forEach((column, number) => {
      const text = column.text(row);
      const one = make(number ? "td" : "th", number ? {} : { scope: "row" }, text);
      if (text.length > 40) one.title = text;
      if (column.text.differs?.(row)) one.classList.add("differs");
      if (mark && column.name === "marked_by") one.prepend(make("span", { "aria-hidden": "true" }, `${SIGN[mark.severity]} `));
      line.append(one);
    });
    return line;
  }

  /** Bring a rank into the window. */
  async showRank(rank) {
    if (!(await this.open())) return;
    const row = this.ranks.place.get(rank);
    if (row === undefined) return;
    if (!this.view.includes(row)) this.reset();
    this.target = rank;
    this.drawn = null;
    this.window.scrollIntoView({ block: "center" });
    this.window.scrollTop = Math.max(0, this.view.indexOf(row) * ROW - this.window.clientHeight / 2);
    this.draw();
  }

  /** Show the ranks of a node. */
  async showNode(name) {
    if (!(await this.open())) return;
    this.reset();
    this.where.value = String(this.columns.findIndex((column) => column.name === "node"));
    this.query.value = name;
    this.update();
    this.window.scrollIntoView({ block: "center" });
    this.window.focus({ preventScroll: true });
  }

  csv() {
    const lines = [this.columns.map((column) => cell(column.title)).join(",")];
    for (const row of this.view) lines.push(this.columns.map((column) => cell(column.text(row))).join(","));
    return `${lines.join("\r\n")}\r\n`;
  }

  async copy() {
    const text = this.csv();
    this.root.querySelector("textarea")?.parentElement.remove();
    try {
      await navigator.clipboard.writeText(text);
      this.note.textContent = say("copied", this.view.length);
    } catch {
      const field = make("textarea", { readonly: true, rows: 4 });
      field.value = text;
      this.window.before(make("label", { class: "csv" }, say("csv"), field));
      field.select();
      this.note.textContent = say("copy_by_hand");
    }
  }
}

const tables = [...document.querySelectorAll(".ranktable")].map((_, place) => new RankTable(place));
