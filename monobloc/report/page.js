// The treemap: boxes as large as the bytes they stand for, nested as the report's rows say.
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const map = document.getElementById("map"), tip = document.getElementById("tip"), way = document.getElementById("way");
const number = n => n.toLocaleString("en-US") + (n === 1 ? " byte" : " bytes");
const share = n => (100 * n / report.bytes).toFixed(n < report.bytes / 1000 ? 3 : 1) + "% of the file";
const paths = {
  owner: row => row.path,
  kind: row => [row.kind, ...row.path],
  section: row => [row.section, ...row.path],
};

function tree(by) {
  const root = { name: report.image, bytes: 0, inner: new Map() };
  for (const row of report.boxes) {
    let node = root;
    node.bytes += row.bytes;
    for (const name of paths[by](row)) {
      if (!node.inner.has(name)) node.inner.set(name, { name, bytes: 0, inner: new Map(), up: node });
      node = node.inner.get(name);
      node.bytes += row.bytes;
    }
    node.row = row;
  }
  return root;
}

// Squarified (Bruls, Huizing, van Wijk): rows of boxes along the shorter side, each as square as can be.
function layout(nodes, x, y, w, h, place) {
  const total = nodes.reduce((sum, n) => sum + n.bytes, 0);
  if (!total || w <= 0 || h <= 0) return;
  const scale = w * h / total;
  let rest = nodes.slice();
  while (rest.length) {
    const side = Math.min(w, h);
    const worst = (sum, list) => Math.max(...list.map(n => {
      const a = n.bytes * scale, d = sum * scale / side;
      return Math.max(d * d / a, a / (d * d));
    }));
    let count = 1, sum = rest[0].bytes;
    while (count < rest.length &&
           worst(sum + rest[count].bytes, rest.slice(0, count + 1)) <= worst(sum, rest.slice(0, count)))
      sum += rest[count++].bytes;
    const depth = sum * scale / side;
    let at = 0;
    for (const n of rest.slice(0, count)) {
      const length = n.bytes * scale / depth;
      if (w >= h) place(n, x, y + at, depth, length); else place(n, x + at, y, length, depth);
      at += length;
    }
    if (w >= h) { x += depth; w -= depth; } else { y += depth; h -= depth; }
    rest = rest.slice(count);
  }
}

function box(kind, node, x, y, w, h, into) {
  const div = document.createElement("div");
  div.className = kind;
  Object.assign(div.style, { left: x + "px", top: y + "px", width: Math.max(w, 0.5) + "px", height: Math.max(h, 0.5) + "px" });
  div.onmouseover = e => { e.stopPropagation(); tell(node); };
  into.appendChild(div);
  return div;
}

const largest = node => [...node.inner.values()].sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1));

function draw(node, into, x, y, w, h, depth) {
  layout(largest(node), x, y, w, h, (n, bx, by, bw, bh) => {
    if (!n.inner.size || bw < 5 || bh < 5 || depth > 3) {
      const leaf = box("leaf " + kindOf(n), n, bx, by, bw, bh, into);
      if (bw > 34 && bh > 13) leaf.textContent = n.name;
      leaf.onclick = e => { e.stopPropagation(); show(n.inner.size ? n : n.up); };
      return;
    }
    const group = box("group", n, bx, by, bw, bh, into);
    const head = bw > 40 && bh > 28 ? 17 : 0;
    if (head) { const b = document.createElement("b"); b.textContent = n.name; group.appendChild(b); }
    group.onclick = e => { e.stopPropagation(); show(n); };
    draw(n, group, 1, head, bw - 4, bh - head - 3, depth + 1);
  });
}

function kindOf(node) {
  while (!node.row) node = largest(node)[0];
  return node.row.kind;
}

function tell(node) {
  const names = [];
  for (let n = node; n.up; n = n.up) names.unshift(n.name);
  let text = names.join(" > ") + ": " + number(node.bytes) + ", " + share(node.bytes);
  if (node.row) {
    text += ", " + node.row.kind + " in " + node.row.section;
    if (node.row.users) text += ". Read by " + node.row.users.join(", ");
    if (node.row.chain && node.row.chain.length) text += ". Needed by " + node.row.chain.join(", by ");
  }
  tip.textContent = text;
}

function show(node) {
  map.replaceChildren();
  way.replaceChildren();
  const steps = [];
  for (let n = node; n; n = n.up) steps.unshift(n);
  steps.forEach((n, k) => {
    if (k) way.append(" > ");
    const b = document.createElement("button");
    b.textContent = n.name + " (" + number(n.bytes) + ")";
    b.onclick = () => show(n);
    way.append(b);
  });
  draw(node, map, 0, 0, map.clientWidth, map.clientHeight, 0);
}

let shown = "owner";
function choose(by) {
  shown = by;
  for (const b of document.querySelectorAll("[data-by]")) b.setAttribute("aria-pressed", b.dataset.by === by);
  show(tree(by));
}
for (const b of document.querySelectorAll("[data-by]")) b.onclick = () => choose(b.dataset.by);
addEventListener("resize", () => choose(shown));
choose(shown);
