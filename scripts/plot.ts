/** Charts over time as SVG, one below the other, without external resources. */

interface Line {
  name: string;
  colour: string;
  /** Time in seconds, and value. */
  points: readonly (readonly [x: number, y: number])[];
}

export interface Chart {
  title: string;
  lines: readonly Line[];
  /** Times of marks below the chart, in seconds. */
  marks?: readonly number[];
}

const WIDTH = 720;
const HEIGHT = 150;
const LEFT = 60;
const MAX_POINTS = 700;

export function svgOf(title: string, charts: readonly Chart[]): string {
  const height = 30 + charts.length * (HEIGHT + 40) + 20;
  const body = charts.map(
    (chart, at) => `<g transform="translate(0 ${30 + at * (HEIGHT + 40)})">${chartOf(chart)}</g>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH + LEFT + 20} ${height}" font-family="sans-serif" font-size="12">`,
    `<title>${escaped(title)}</title>`,
    '<rect width="100%" height="100%" fill="#fff"/>',
    `<text x="10" y="18" font-size="14" font-weight="bold">${escaped(title)}</text>`,
    ...body,
    '</svg>\n',
  ].join('\n');
}

function chartOf({ title, lines, marks = [] }: Chart): string {
  const all = lines.flatMap(({ points }) => points);
  // Without spread, because a day has more points than the maximum number of arguments.
  const from = all.reduce((least, [x]) => Math.min(least, x), Number.POSITIVE_INFINITY);
  const to = all.reduce((highest, [x]) => Math.max(highest, x), Number.NEGATIVE_INFINITY);
  const most = all.reduce((highest, [, y]) => Math.max(highest, y), 1);
  const x = (value: number) => LEFT + ((value - from) / Math.max(1, to - from)) * WIDTH;
  const y = (value: number) => 20 + HEIGHT - (value / most) * HEIGHT;
  const path = ({ colour, points }: Line) =>
    `<polyline fill="none" stroke="${colour}" stroke-width="1.2" points="${thinned(points)
      .map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`)
      .join(' ')}"/>`;
  const legend = lines.map(
    ({ name, colour }, at) =>
      `<text x="${WIDTH + LEFT - 160 * (lines.length - at)}" y="12" fill="${colour}">${escaped(name)}</text>`,
  );
  return [
    `<text x="10" y="12">${escaped(title)}</text>`,
    ...legend,
    `<rect x="${LEFT}" y="20" width="${WIDTH}" height="${HEIGHT}" fill="none" stroke="#bbb"/>`,
    `<text x="${LEFT - 6}" y="${28}" text-anchor="end">${Math.round(most).toLocaleString('en')}</text>`,
    `<text x="${LEFT - 6}" y="${20 + HEIGHT}" text-anchor="end">0</text>`,
    `<text x="${LEFT}" y="${36 + HEIGHT}">${Math.round(from / 60)} min</text>`,
    `<text x="${LEFT + WIDTH}" y="${36 + HEIGHT}" text-anchor="end">${Math.round(to / 60)} min</text>`,
    ...(from < 0 && to > 0
      ? [`<line x1="${x(0)}" x2="${x(0)}" y1="20" y2="${20 + HEIGHT}" stroke="#bbb" stroke-dasharray="3"/>`]
      : []),
    ...marks.map((at) => `<line x1="${x(at)}" x2="${x(at)}" y1="${20 + HEIGHT}" y2="${26 + HEIGHT}" stroke="#c33"/>`),
    ...lines.map(path),
  ].join('\n');
}

/** Returns at most MAX_POINTS points, each the maximum of its group, so that peaks remain. */
function thinned(points: Line['points']): Line['points'] {
  const size = Math.ceil(points.length / MAX_POINTS);
  if (size <= 1) return points;
  const kept: (readonly [number, number])[] = [];
  for (let from = 0; from < points.length; from += size) {
    kept.push(points.slice(from, from + size).reduce((most, one) => (one[1] > most[1] ? one : most)));
  }
  return kept;
}

const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
