'use strict';
// Draws the picture of a history. Times are microseconds from the first event.
const data = JSON.parse(document.getElementById('data').textContent);
const el = id => document.getElementById(id);
const color = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const COLORS = Object.fromEntries(['wait', 'exclusive', 'shared', 'possible', 'lost', 'fault', 'witness'].map(n => [n, color(n)]));
const SHARED = new Set(['read', 'sem']);
const PROCESSES = new Set(data.bars.map(bar => bar.proc));
const [LEFT, ROW, HEAD] = [190, 20, 40];

// Three digits, in the unit that leaves one to three of them before the point.
function time(us) {
  if (us < 1e3) return `${Number(us.toPrecision(3))} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(us < 9.995e3 ? 2 : us < 9.995e4 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(us < 9.995e6 ? 2 : us < 9.995e7 ? 1 : 0)} s`;
}

// ---- What was found

function header() {
  const { judgement, backend, seed } = data, s = judgement.summary;
  document.title = `${judgement.verdict}: ${backend ?? 'history'}`;
  el('verdict').textContent = el('verdict').className = judgement.verdict;
  el('run').textContent = [backend, seed === null ? null : `seed ${seed}`, time(data.end)].filter(x => x !== null).join(' · ');
  el('figures').textContent = `${s.events} events, ${s.grants} grants (${s.contended} contended` +
    `${s.groups ? `, ${s.groups} of several at once` : ''}), ${s.refusals} refusals, ` +
    `${s.unclear} unclear, ${s.losses} losses, ${s.faults} proven faults` +
    s.resources.map(([name, fenced, lost, all, refused]) =>
      `; ${name} (${fenced ? 'fenced' : 'unfenced'}): ${lost} of ${all} updates lost, ${refused} uses refused`).join('');
  judgement.doubts.forEach(doubt => finding(`unknown: ${doubt}`));
  judgement.violations.forEach((violation, place) => {
    const times = violation.count > 1 ? ` (${violation.count} times)` : '';
    finding(`${violation.check}${violation.res ? ' ' + violation.res : ''}: ${violation.what}${times}`, () => showWitness(place));
  });
}

function finding(text, onclick) {
  const item = document.createElement('li');
  item.textContent = text;
  if (onclick) Object.assign(item, { className: 'illegal', onclick });
  el('findings').append(item);
}

function histograms() {
  const { wait, hold, hand_over, margin } = data.judgement.summary;
  histogram('Wait, from the request to the grant', wait);
  histogram('Hold', hold);
  histogram('Hand-over, from the release to the next grant', hand_over);
  histogram('Margin, what was left of a lease when its holder looked', margin);
}

function histogram(title, { count, median, p99, most, buckets }) {
  const box = document.createElement('div'), us = nanos => time(nanos / 1e3);
  const head = document.createElement('h2'), note = document.createElement('p');
  head.textContent = title;
  note.textContent = count ? `${count}: median ${us(median)}, 99 % ${us(p99)}, longest ${us(most)}` : 'none';
  box.append(head, note);
  // From one place before the first bar to one behind the last, and six at least: a single bar shows its neighbours.
  const filled = buckets.flatMap((n, i) => (n > 0 ? [i] : [])), lead = Math.max(1, Math.ceil((6 - filled.length) / 2));
  const first = Math.max(0, (filled[0] ?? 0) - lead), last = Math.max((filled.at(-1) ?? 0) + lead, first + 5);
  const shown = Array.from({ length: last - first + 1 }, (_, i) => buckets[first + i] ?? 0), top = Math.max(...shown, 1);
  const width = 300 / shown.length;
  // The square root keeps rare long ones visible beside thousands of short ones.
  const bars = shown.map((n, i) => {
    const height = n ? Math.max(2, 50 * Math.sqrt(n / top)) : 0, x = i * width;
    const label = i % Math.ceil(shown.length / 5) || i === shown.length - 1 ? '' : `<text x="${x}" y="70">${time(Math.floor(2 ** (first + i - 1)))}</text>`;
    return `<rect x="${x}" y="${56 - height}" width="${width - 2}" height="${height}" fill="${COLORS.exclusive}"><title>${n} of up to ${time(2 ** (first + i))}</title></rect>${label}`;
  });
  if (count) box.insertAdjacentHTML('beforeend', `<svg viewBox="0 0 300 76" preserveAspectRatio="none">${bars.join('')}</svg>`);
  el('histograms').append(box);
}

// ---- The timeline

const canvas = el('timeline'), pen = canvas.getContext('2d');
let view = [0, Math.max(data.end, 1)], all = [], rows = [], marked = new Set(), marks = [];

// One row for each lock and process; the lock that a witness is about comes first.
function layOut() {
  const lock = el('lock').value.toLowerCase(), owner = el('owner').value.toLowerCase();
  const found = new Map();
  for (const bar of data.bars) {
    if (!bar.res.toLowerCase().includes(lock) || !(bar.proc + ' ' + bar.owner).toLowerCase().includes(owner)) continue;
    const space = { read: 'rwlock', write: 'rwlock', sem: 'semaphore' }[bar.kind] ?? bar.kind;
    const key = JSON.stringify([bar.res, space, bar.proc]);
    if (!found.has(key)) found.set(key, { name: `${bar.res} (${space})`, proc: bar.proc, bars: [] });
    found.get(key).bars.push(bar);
  }
  const order = new Intl.Collator(undefined, { numeric: true });
  const about = new Set([...found.values()].filter(row => row.bars.some(bar => marked.has(bar.id))).map(row => row.name));
  all = [...found.values()].sort((a, b) =>
    about.has(b.name) - about.has(a.name) || order.compare(a.name, b.name) || order.compare(a.proc, b.proc));
  draw();
}

const width = () => canvas.clientWidth - LEFT;
const x = t => LEFT + (t - view[0]) / (view[1] - view[0]) * width();
const at = px => view[0] + (px - LEFT) / width() * (view[1] - view[0]);

function box(from, to, y, height, fill) {
  const left = Math.max(x(from), LEFT), right = Math.min(Math.max(x(to), x(from) + 1), canvas.clientWidth);
  if (right < LEFT || left > canvas.clientWidth) return;
  pen.fillStyle = fill;
  pen.fillRect(left, y, right - left, height);
}

const isIn = (from, to) => to >= view[0] && from <= view[1];

function draw() {
  // A lane without anything in the range is left out.
  rows = all.filter(row => row.bars.some(bar => isIn(bar.asked, end(bar))));
  const height = HEAD + rows.length * ROW + 6, ratio = devicePixelRatio;
  canvas.style.height = `${height}px`;
  [canvas.width, canvas.height] = [canvas.clientWidth * ratio, height * ratio];
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, height);
  pen.font = '11px system-ui, sans-serif';
  drawFaults(height);
  drawScale(height);
  rows.forEach(drawRow);
  for (const t of marks) box(t, t, HEAD, height - HEAD, COLORS.witness);
  el('range').textContent = `${time(Math.max(view[0], 0))} to ${time(view[1])}; 0 is t = ${data.origin} ns`;
}

function drawFaults(height) {
  let free = -Infinity;
  for (const fault of data.faults) {
    // What happened to one process is drawn on its lanes, everything else over all of them.
    const lanes = rows.flatMap((row, place) => (row.proc === fault.target ? [place] : []));
    if (PROCESSES.has(fault.target)) lanes.forEach(place => box(fault.from, fault.to, HEAD + place * ROW, ROW, COLORS.fault));
    else box(fault.from, fault.to, 0, height, COLORS.fault);
    // What nobody chose is shaded only: a frozen process tells of its own stall.
    if (fault.name === 'stall' || (PROCESSES.has(fault.target) && !lanes.length)) continue;
    const label = `${fault.name} ${fault.target}`, left = Math.max(x(fault.from), LEFT);
    if (left < free || x(fault.to) < LEFT || left > canvas.clientWidth) continue;
    pen.fillStyle = '#7a5a0c';
    pen.fillText(label, left + 2, 12);
    free = left + pen.measureText(label).width + 8;
  }
}

function drawScale(height) {
  const span = view[1] - view[0], raw = span / (width() / 110), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= raw);
  // As many digits as it takes to tell one line from the next.
  const digits = Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(step))));
  for (let t = Math.max(0, Math.ceil(view[0] / step)) * step; t <= view[1]; t += step) {
    pen.fillStyle = '#e6e9ef';
    pen.fillRect(x(t), 20, 1, height);
    pen.fillStyle = '#6a7484';
    pen.fillText(`${(t / 1e6).toFixed(digits)} s`, x(t) + 3, 30);
  }
}

function drawRow(row, place) {
  const y = HEAD + place * ROW, isFirst = place === 0 || rows[place - 1].name !== row.name;
  const shown = row.bars.filter(bar => isIn(bar.asked, end(bar)));
  for (const bar of shown) box(bar.asked, bar.answered ?? data.end, y + 9, 2, COLORS.wait);
  for (const bar of shown.filter(bar => bar.held)) box(bar.held[1], bar.possible ?? bar.held[1], y + 6, 8, COLORS.possible);
  for (const bar of shown) drawHold(bar, y);
  pen.fillStyle = '#fff';
  pen.fillRect(0, y, LEFT - 4, ROW);
  if (isFirst) {
    pen.fillStyle = '#b6bfcd';
    pen.fillRect(0, y, canvas.clientWidth, 1);
  }
  pen.fillStyle = '#1c2430';
  if (isFirst) pen.fillText(row.name, 4, y + 14, LEFT - 70);
  pen.fillText(row.proc, LEFT - 60, y + 14, 54);
}

const end = bar => Math.max(bar.possible ?? 0, bar.answered ?? data.end, bar.lost?.[0] ?? 0);

function drawHold(bar, y) {
  if (bar.lost) box(bar.lost[0], bar.lost[0], y + 1, 18, COLORS.lost);
  if (!bar.held) return;
  const [from, to] = bar.held, left = Math.max(x(from), LEFT), right = Math.min(x(to), canvas.clientWidth);
  box(from, to, y + 3, 14, SHARED.has(bar.kind) ? COLORS.shared : COLORS.exclusive);
  if (right < LEFT) return;
  if (marked.has(bar.id)) {
    [pen.strokeStyle, pen.lineWidth] = [COLORS.witness, 2];
    pen.strokeRect(left - 1, y + 2, Math.max(3, right - left) + 2, 16);
  }
  if (bar.token !== null && right - left > 40 && pen.measureText(bar.token).width < right - left - 8) {
    pen.fillStyle = '#fff';
    pen.fillText(bar.token, left + 4, y + 14);
  }
}

function showWitness(place) {
  const events = data.witnesses[place], times = events.map(event => event.t);
  if (!events.length) return;
  marked = new Set(events.map(event => event.id));
  marks = times;
  const [from, to] = [Math.min(...times), Math.max(...times)], room = Math.max((to - from) * 0.4, 2000);
  view = [from - room, to + room];
  el('detail').textContent = events.map(event => `line ${event.line}, at ${time(event.t)} of the axis: ${event.text}`).join('\n');
  layOut();
}

// ---- Looking around

canvas.addEventListener('wheel', event => {
  event.preventDefault();
  const t = at(event.offsetX), factor = Math.exp(event.deltaY / 400);
  view = view.map(edge => t + (edge - t) * factor);
  draw();
}, { passive: false });

let grabbed = null;
canvas.addEventListener('pointerdown', event => {
  grabbed = event.offsetX;
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener('pointerup', () => { grabbed = null; });
canvas.addEventListener('pointermove', event => {
  if (grabbed === null) return describe(event);
  const by = at(grabbed) - at(event.offsetX);
  grabbed = event.offsetX;
  view = view.map(edge => edge + by);
  draw();
});

function describe(event) {
  const row = rows[Math.floor((event.offsetY - HEAD) / ROW)], t = at(event.offsetX), slack = (view[1] - view[0]) / width() * 2;
  const bars = row?.bars.filter(bar => bar.asked - slack <= t && t <= end(bar) + slack) ?? [];
  const isThere = fault => fault.from - slack <= t && t <= fault.to + slack && (!PROCESSES.has(fault.target) || fault.target === row?.proc);
  const faults = data.faults.filter(isThere).map(fault =>
    `${fault.name} of ${fault.target}: from ${time(fault.from)} for ${time(fault.to - fault.from)}`);
  const told = bars.slice(-3).map(bar => {
    const held = bar.held ? `, held from ${time(bar.held[0])} for ${time(bar.held[1] - bar.held[0])}` : '';
    const lost = bar.lost ? `, lost at ${time(bar.lost[0])}: ${bar.lost[1]}` : '';
    const token = bar.token === null ? '' : `, token ${bar.token}`;
    return `${bar.id} (${bar.kind}): asked at ${time(bar.asked)}, ${bar.outcome}${token}${held}${lost}`;
  });
  el('detail').textContent = canvas.title = [...told, ...faults.slice(-3)].join('\n');
}

el('all').onclick = () => {
  view = [0, Math.max(data.end, 1)];
  [marked, marks] = [new Set(), []];
  layOut();
};
el('lock').oninput = el('owner').oninput = layOut;
addEventListener('resize', draw);
header();
histograms();
layOut();
if (data.judgement.violations.length) showWitness(0);
