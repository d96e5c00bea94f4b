const cells = (rows) => {
  const names = [...new Set(rows.flatMap(Object.keys))];
  const cell = (it) => it === null || it === undefined ? "" : '"' + String(it).replaceAll('"', '""') + '"';
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((row) => row.map(cell).join(",")).join("\n");
};
// Lines of at most this many letters, for titles of axes.
const wrapped = (text, most) => (text.match(new RegExp(".{1," + most + "}(\\s|$)|\\S+", "g")) ?? [text]).map((it) => it.trim());
const fitted = (spec, room) => {
  const unit = spec.spec ?? spec;
  const layers = unit.layer ?? [unit];
  const all = (channel) => layers.map((layer) => layer.encoding?.[channel]).filter((it) => it?.field);
  const values = (channel) => channel ? [...new Set(spec.data.values.map((row) => row[channel.field]))] : [0];
  const [names] = all("y").filter((it) => it.type === "nominal");
  const widest = (list) => Math.max(...list.map((it) => String(it).length)) * 7;
  const limit = Math.min(names?.axis?.labelLimit ?? 180, room / 2.5);
  const height = typeof unit.height === "number" ? unit.height : 260;
  for (const it of all("y")) {
    if (it.title) it.title = wrapped(it.title, Math.max(16, Math.floor(height / 7.5)));
    if (names) it.axis = { ...it.axis, labelLimit: limit };
  }
  const lines = Math.max(0, ...all("y").map((it) => it.title?.length ?? 0));
  const labels = names ? Math.min(limit, widest(values(names))) : all("y")[0]?.axis?.labelExpr ? 110 : 62;
  const inner = Math.max(180, room - labels - 16 * lines - 20);
  const [x] = all("x"), [xOffset] = all("xOffset");
  if (typeof unit.width === "number") {
    const fits = !spec.facet && typeof unit.height === "number";
    unit.width = fits ? room : inner;
    if (fits) spec.autosize = { type: "fit-x", contains: "padding" };
  } else if (x) {
    const bars = values(x).length * values(xOffset).length;
    unit.width.step = Math.max(6, Math.min(Math.max(unit.width.step, 64), inner / bars));
  }
  for (const it of all("x")) {
    if (it.title) it.title = wrapped(it.title, Math.floor(inner / 7));
    if (room < 600 && it.type === "nominal") it.axis = { ...it.axis, labelAngle: -40 };
    if (it.type === "quantitative") it.axis = { ...it.axis, tickCount: room < 600 ? 4 : 12, labelOverlap: true };
  }
  const entries = all("color").flatMap((it) => it.scale?.domain ?? []).filter((it) => typeof it === "string");
  spec.config.legend.columns = Math.max(1, Math.min(6, Math.floor(room / (widest(["", ...entries]) + 48))));
  return spec;
};
const save = (name, url) => Object.assign(document.createElement("a"), { download: name, href: url }).click();
const offer = (holder, id, spec, view) => {
  const data = () => URL.createObjectURL(new Blob([cells(spec.data.values)], { type: "text/csv" }));
  const ways = { svg: () => view.toImageURL("svg"), png: () => view.toImageURL("png", 2), csv: data };
  const links = document.createElement("p");
  links.className = "save";
  links.textContent = "Save as ";
  for (const [kind, image] of Object.entries(ways)) {
    const button = document.createElement("button");
    button.textContent = kind.toUpperCase();
    button.onclick = async () => save(id + "." + kind, await image());
    links.append(button);
  }
  holder.after(links);
};
for (const holder of document.querySelectorAll("[data-figure]")) {
  const id = holder.dataset.figure;
  const draw = async () => {
    const spec = fitted(JSON.parse(document.getElementById(id + "-data").textContent), holder.parentElement.clientWidth);
    const drawn = await vegaEmbed(holder, spec, { actions: false, renderer: "svg" });
    offer(holder, id, spec, drawn.view);
    holder.dataset.drawn = "yes";
  };
  draw().catch(
    (error) => { holder.dataset.drawn = "no"; holder.textContent = "figure failed: " + error; });
}
// Rows link to themselves.
for (const row of document.querySelectorAll("tr[id]")) {
  const link = Object.assign(document.createElement("a"), { className: "row", href: "#" + row.id });
  link.append(...row.cells[0].childNodes);
  row.cells[0].append(link);
}
