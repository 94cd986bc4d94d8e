import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, extname, join, resolve } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { build } from 'rolldown';

/**
 * `build-page.ts [--stale] [FOLDER] [PAGE]` builds the pages into `dist/page/` or FOLDER. Each folder of src/page with
 * an `index.html` is a page with one script (`main.tsx` and its imports), one style sheet and an icon. Files other than
 * the page have a content hash in their names for caching, and are stored uncompressed, as gzip and as Brotli, because
 * the gateway does not compress them. With `--stale`, pages are built only if a source is newer.
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

/** Returns the licences of the bundled packages. */
function notices(): string {
  const texts = BUNDLED.map(
    (name) => `${name}\n\n${readFileSync(join(root, 'node_modules', name, 'LICENSE'), 'utf8').trim()}\n`,
  );
  return texts.join('\n');
}

/** Returns a module with the meanings of log events from docs/reference/logs.md. */
function logMeanings(): string {
  const page = readFileSync(join(root, 'docs/reference/logs.md'), 'utf8');
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
  // The pages also import from these folders; package-lock.json determines the libraries.
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
      // For example, a module that exists only in Node.
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
  // Written last, after all files that it refers to.
  write(join(target, 'index.html'), named);
}

/** Returns a style sheet with its imports inlined, without comments and whitespace. */
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

/** Writes a file and returns its name with the content hash. */
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
