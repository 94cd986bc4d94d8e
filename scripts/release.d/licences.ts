import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bundledPackages } from './bundled.ts';

/** `licences.ts TREE` prints the licence texts of an unpacked .deb, each text once. */
const tree = process.argv[2]!;
const byText = new Map<string, string[]>();
const add = (text: string, whose: string) => byText.set(text, [...(byText.get(text) ?? []), whose]);
for (const { name, version, licence, texts } of bundledPackages(tree)) {
  const words = texts.map((file) => readFileSync(file, 'utf8').trim()).join('\n\n');
  add(
    words === '' ? `Declared in its package.json: ${licence ?? 'nothing'}` : words,
    `${name} ${version} (${licence ?? 'see below'})`,
  );
}
const notices = join(tree, 'usr/lib/tagferry/dist/page/notices.txt');
add(readFileSync(notices, 'utf8').trim(), 'preact and uPlot, inside the page');
add(readFileSync(join(tree, 'usr/lib/tagferry/bin/LICENSE-node'), 'utf8').trim(), 'Node.js and the libraries in it');
for (const [text, whose] of byText) {
  const line = '='.repeat(78);
  console.log([line, ...new Set(whose), line, '', text, ''].join('\n'));
}
