const WIDTH = 720;
const HEIGHT = 160;
const LEFT = 56;
const BOTTOM = 24;

/** A line over time, as SVG that needs nothing beside it; faults are marks below. */
export function plot(
  title: string,
  points: readonly { s: number; y: number }[],
  marks: readonly number[] = [],
): string {
  const endS = Math.max(1, ...points.map(({ s }) => s));
  const top = Math.max(1, ...points.map(({ y }) => y)) * 1.1;
  const x = (s: number) => (LEFT + (s / endS) * (WIDTH - LEFT - 8)).toFixed(1);
  const y = (value: number) => (HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 24)).toFixed(1);
  const text = (atX: string | number, atY: string | number, words: string, anchor = 'start') =>
    `<text x="${atX}" y="${atY}" text-anchor="${anchor}" font-family="sans-serif" font-size="11" fill="#555">${words}</text>`;
  const line = points.map(({ s, y: value }) => `${x(s)},${y(value)}`).join(' ');
  const grid = [0, top / 2, top].map(
    (value) =>
      `<line x1="${LEFT}" x2="${WIDTH - 8}" y1="${y(value)}" y2="${y(value)}" stroke="#ddd"/>${text(LEFT - 6, Number(y(value)) + 4, value < 10 ? value.toFixed(1) : String(Math.round(value)), 'end')}`,
  );
  const faults = marks.map(
    (s) => `<line x1="${x(s)}" x2="${x(s)}" y1="${HEIGHT - BOTTOM}" y2="${HEIGHT - BOTTOM + 6}" stroke="#c33"/>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${title}">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    text(LEFT, 14, title),
    ...grid,
    ...faults,
    `<polyline points="${line}" fill="none" stroke="#1565c0" stroke-width="1.2"/>`,
    text(LEFT, HEIGHT - 6, '0'),
    text(WIDTH - 8, HEIGHT - 6, `${Math.round(endS / 60)} min`, 'end'),
    '</svg>\n',
  ].join('\n');
}
