import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, extname, join, resolve } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { build } from 'rolldown';

/**
 * `build-page.ts [--stale] [FOLDER] [PAGE]`: what the browser gets, into `dist/page/` or the folder named. Each folder of src/page with an
 * `index.html` is a page: its `main.tsx` and all that it imports in one script, its `style.css` after those that it names, an icon.
 * Every file but the page itself has the hash of its content in its name, so that it may be kept for ever, and lies there plain, as gzip and
 * as Brotli: the gateway compresses nothing. `--stale`: only where a source is newer than what was built.
 */
const BUNDLED = ['preact', 'uplot'];
const LOG_MEANINGS = 'tagferry:log-meanings';
const root = join(import.meta.dirname, '..');
const source = join(root, 'src/page');
const [flag, ...rest] = process.argv.slice(2);
const [into = join(root, 'dist/page'), only] = flag === '--stale' ? rest : process.argv.slice(2);
const folder = resolve(into);
const pages = readdirSync(source).filter(
  (name) => existsSync(join(source, name, 'index.html')) && (only ?? name) === name,
);
if (flag !== '--stale' || isStale()) {
  for (const page of pages) await buildPage(page);
  writeFileSync(join(folder, 'notices.txt'), notices());
}

/** The licences of what is bundled, word for word: they go where the pages go. */
function notices(): string {
  const texts = BUNDLED.map(
    (name) => `${name}\n\n${readFileSync(join(root, 'node_modules', name, 'LICENSE'), 'utf8').trim()}\n`,
  );
  return texts.join('\n');
}

/** What docs/logs.md says of each event, as a module. */
function logMeanings(): string {
  const page = readFileSync(join(root, 'docs/logs.md'), 'utf8');
  const plain = (text: string) => text.trim().replaceAll(/[`*]|\[([^\]]+)\]\([^)]*\)/g, '$1');
  const rows = [...page.matchAll(/^\| `([a-z_]+\.[a-z0-9_]+)` \| [^|]+ \| ([^|]+) \|(.*)\|$/gm)];
  const meanings = rows.map(([, event, meaning, action]) => [
    event,
    { meaning: plain(meaning!), action: plain(action!) },
  ]);
  return `export const LOG_MEANINGS = JSON.parse(${JSON.stringify(JSON.stringify(Object.fromEntries(meanings)))});`;
}

function isStale(): boolean {
  const built = pages.map((page) => join(folder, page, 'index.html'));
  if (!built.every(existsSync)) return true;
  const builtMs = Math.min(...built.map((file) => statSync(file).mtimeMs));
  // The page's words and types come from other rooms, too, but seldom; the lock file says which libraries.
  const files = ['src/page', 'src/base', 'src/ops', 'docs'].flatMap((from) =>
    readdirSync(join(root, from), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name)),
  );
  return [...files, join(root, 'package-lock.json'), import.meta.filename].some(
    (file) => statSync(file).mtimeMs > builtMs,
  );
}

async function buildPage(page: string): Promise<void> {
  const { output } = await build({
    cwd: root,
    input: join(source, page, 'main.tsx'),
    platform: 'browser',
    write: false,
    plugins: [
      {
        name: 'log-meanings',
        resolveId: (id) => (id === LOG_MEANINGS ? `\0${id}` : null),
        load: (id) => (id === `\0${LOG_MEANINGS}` ? logMeanings() : null),
      },
    ],
    tsconfig: join(source, 'tsconfig.json'),
    transform: { target: 'es2022' },
    output: { format: 'esm', minify: true, comments: { legal: true, annotation: false, jsdoc: false } },
    onLog(level, log) {
      // A module that only Node has, for one: the browser would stop at it.
      if (level === 'warn') throw new Error(`${page}: ${log.message}`);
    },
  });
  if (output.length !== 1 || output[0].type !== 'chunk') throw new Error(`${page}: the script is one file`);
  const target = join(folder, page);
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  const script = put(target, 'main.js', output[0].code);
  const style = put(target, 'style.css', styleOf(join(source, page, 'style.css')));
  const icon = put(target, 'icon.svg', readFileSync(join(source, 'icon.svg'), 'utf8'));
  const html = readFileSync(join(source, page, 'index.html'), 'utf8');
  const named = html.replace('main.tsx', script).replace('style.css', style).replace('../icon.svg', icon);
  // Last: where it stands, everything it names does.
  write(join(target, 'index.html'), named);
}

/** A style sheet with those that it imports in their places, without comments and needless spaces. */
function styleOf(path: string): string {
  const text = readFileSync(path, 'utf8').replaceAll(/@import ["']([^"']+)["'];/g, (_, name: string) =>
    name.startsWith('.') ? styleOf(join(path, '..', name)) : readFileSync(join(root, 'node_modules', name), 'utf8'),
  );
  return text
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/ ?([{};,]) ?/g, '$1')
    .trim();
}

/** Gives the name with the content's hash in it. */
function put(target: string, name: string, text: string): string {
  const hash = createHash('sha256')
    .update(text)
    .digest('base64url')
    .replaceAll(/[^A-Za-z0-9]/g, '')
    .slice(0, 10);
  const hashed = `${basename(name, extname(name))}-${hash}${extname(name)}`;
  write(join(target, hashed), text);
  return `page/${hashed}`;
}

function write(file: string, text: string): void {
  const params = { [constants.BROTLI_PARAM_SIZE_HINT]: Buffer.byteLength(text) };
  writeFileSync(`${file}.gz`, gzipSync(text, { level: 9 }));
  writeFileSync(`${file}.br`, brotliCompressSync(text, { params }));
  writeFileSync(file, text);
}
