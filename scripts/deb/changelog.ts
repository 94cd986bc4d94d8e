import { readChangelog } from '../changelog.ts';

/**
 * `changelog.ts ROOT VERSION EPOCH` prints CHANGELOG.md as a Debian changelog. The newest section gets VERSION; EPOCH
 * (seconds) is its time, and that of sections without a date.
 */
const [root, version, epoch] = process.argv.slice(2) as [string, string, string];
const WIDTH = 78;

for (const [i, release] of readChangelog(root).entries()) {
  const name = i === 0 ? version : release.version;
  const time = new Date(i === 0 || release.date === undefined ? Number(epoch) * 1000 : `${release.date}T00:00:00Z`);
  const entries = [release.words, ...release.changes].filter((entry) => entry !== '');
  console.log(`${i === 0 ? '' : '\n'}tagferry (${name}) stable; urgency=medium\n`);
  for (const entry of entries) console.log(item(entry));
  // RFC 5322: `Sun, 22 Nov 2026 10:00:00 +0000`.
  console.log(
    `\n -- tagferry maintainers <maintainers@tagferry.invalid>  ${time.toUTCString().replace('GMT', '+0000')}`,
  );
}

function item(text: string): string {
  const lines: string[] = [];
  let line = '  *';
  for (const word of text.split(' ')) {
    if (line.length + 1 + word.length > WIDTH && line !== '   ') {
      lines.push(line);
      line = '   ';
    }
    line += ` ${word}`;
  }
  return [...lines, line].join('\n');
}
