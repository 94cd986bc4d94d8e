import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, extname, join, resolve } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { build } from 'rolldown';

/**
 * `build-page.ts [--stale] [FOLDER]` builds the gateway's page into `dist/page/` or FOLDER: one script (`main.tsx`
 * and its imports), one style sheet and an icon. Files other than `index.html` have a content hash in their names for
 * caching. All files are stored uncompressed, as gzip and as Brotli, because the gateway does not compress them. With
 * `--stale`, the page is built only if a source is newer.
 */
const BUNDLED = ['preact', 'uplot'];
const LOG_MEANINGS = 'tagferry:log-meanings';
const root = join(import.meta.dirname, '..');
const source = join(root, 'src/page');
const [flag, ...rest] = process.argv.slice(2);
const [into = join(root, 'dist/page')] = flag === '--stale' ? rest : process.argv.slice(2);
const folder = resolve(into);
if (flag !== '--stale' || isStale()) {
  await buildPage();
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
  const built = join(folder, 'index.html');
  if (!existsSync(built)) return true;
  const builtMs = statSync(built).mtimeMs;
  // The page also imports from these folders; package-lock.json determines the libraries.
  const files = ['src/page', 'src/base', 'src/ops', 'docs'].flatMap((from) =>
    readdirSync(join(root, from), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name)),
  );
  return [...files, join(root, 'package-lock.json'), import.meta.filename].some(
    (file) => statSync(file).mtimeMs > builtMs,
  );
}

async function buildPage(): Promise<void> {
  const { output } = await build({
    cwd: root,
    input: join(source, 'main.tsx'),
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
      if (level === 'warn') throw new Error(log.message);
    },
  });
  if (output.length !== 1 || output[0].type !== 'chunk') throw new Error('the script must be one file');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const script = put('main.js', output[0].code);
  const style = put('style.css', styleOf(join(source, 'style.css')));
  const icon = put('icon.svg', readFileSync(join(source, 'icon.svg'), 'utf8'));
  const html = readFileSync(join(source, 'index.html'), 'utf8');
  const named = html.replace('main.tsx', script).replace('style.css', style).replace('icon.svg', icon);
  // Written last, after all files that it refers to.
  write(join(folder, 'index.html'), named);
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
function put(name: string, text: string): string {
  const hash = createHash('sha256')
    .update(text)
    .digest('base64url')
    .replaceAll(/[^A-Za-z0-9]/g, '')
    .slice(0, 10);
  const hashed = `${basename(name, extname(name))}-${hash}${extname(name)}`;
  write(join(folder, hashed), text);
  return `page/${hashed}`;
}

function write(file: string, text: string): void {
  const params = { [constants.BROTLI_PARAM_SIZE_HINT]: Buffer.byteLength(text) };
  writeFileSync(`${file}.gz`, gzipSync(text, { level: 9 }));
  writeFileSync(`${file}.br`, brotliCompressSync(text, { params }));
  writeFileSync(file, text);
}
