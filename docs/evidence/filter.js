// Filters results.csv on its page. Without JavaScript the page names the file and counts the verdicts.
"use strict";

// Rows that are shown at once.
const SHOWN = 200;

// The records of a text in CSV (RFC 4180), each a list of cells.
function records(text) {
  const cell = /("(?:[^"]|"")*"|[^,\r\n]*)(,|\r?\n|$)/y;
  const all = [];
  let record = [];
  while (cell.lastIndex < text.length) {
    const [, value, end] = cell.exec(text);
    record.push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value);
    if (end !== ",") {
      all.push(record);
      record = [];
    }
  }
  return all;
}

// A new element in `parent`.
function add(parent, name, text = "") {
  const element = document.createElement(name);
  element.textContent = text;
  parent.append(element);
  return element;
}

// A list of the values that `rows` have at `place`, to choose one from.
function choice(parent, title, rows, place) {
  const select = add(add(parent, "label", `${title} `), "select");
  add(select, "option", "all").value = "";
  for (const value of [...new Set(rows.map((row) => row[place]))].sort()) {
    const option = add(select, "option", value || "none");
    option.value = `=${value}`;
  }
  return { select, place };
}

// Controls and a table of the rows that they leave.
function show(place, [titles, ...rows]) {
  const form = add(place, "p");
  const words = add(add(form, "label", "Words "), "input");
  words.placeholder = "main copa_sfq slowdown";
  const choices = ["back_end", "verdict"].map((title) =>
    choice(add(form, "span", " "), title.replace("_", " "), rows, titles.indexOf(title)));
  const count = add(place, "p");
  const frame = add(place, "div");
  frame.style.overflowX = "auto";
  const table = add(frame, "table");
  const heads = add(add(table, "thead"), "tr");
  titles.forEach((title) => add(heads, "th", title));
  const body = add(table, "tbody");
  const texts = rows.map((row) => row.join(" ").toLowerCase());
  const update = () => {
    const wanted = words.value.toLowerCase().split(/\s+/);
    const found = rows.filter((row, index) =>
      wanted.every((word) => texts[index].includes(word)) &&
      choices.every(({ select, place }) => !select.value || select.value === `=${row[place]}`));
    const first = found.length > SHOWN ? `, the first ${SHOWN} of them below` : "";
    count.textContent = `${found.length} of ${rows.length} rows${first}`;
    body.replaceChildren();
    for (const row of found.slice(0, SHOWN)) {
      const line = add(body, "tr");
      row.forEach((cell) => add(line, "td", cell));
    }
  };
  words.addEventListener("input", update);
  choices.forEach(({ select }) => select.addEventListener("change", update));
  update();
}

(async () => {
  const place = document.getElementById("results");
  try {
    const response = await fetch("results.csv");
    if (!response.ok) throw new Error(response.statusText);
    show(place, records(await response.text()));
  } catch (error) {
    add(place, "p", `results.csv cannot be read here (${error.message}). Pages opened as files cannot ` +
      "read it: serve the site, or open results.csv.");
  }
})();
