import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');

it.each([
  ['is used by nothing', []],
  ['is used by tests alone', ['--production']],
] as const)('no file, export, type or dependency %s (knip.ts says what is started by its name)', (_, options) => {
  const knip = join(ROOT, 'node_modules/.bin/knip');
  const { status, stdout, stderr } = spawnSync(knip, ['--no-progress', '--no-config-hints', ...options], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  expect(stdout + stderr).toBe('');
  expect(status).toBe(0);
});

/** What a class offers those who write tests with the sandbox, by docs/sandbox.md. */
const OFFERED = ['Sandbox.expectRequest', 'Sandbox.isDeliveryIdle'];

/** Members of classes that all of the source names once, where they are declared. By their names: one that another class has too passes. */
function unnamedMembers(sources: readonly string[]): string[] {
  const texts = sources.map((text) => text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/\/\/.*$/gm, ''));
  const uses = new Map<string, number>();
  for (const text of texts) {
    for (const [word] of text.matchAll(/[A-Za-z_]\w*/g)) uses.set(word, (uses.get(word) ?? 0) + 1);
  }
  const found: string[] = [];
  for (const text of texts) {
    for (const [, name, body] of text.matchAll(/^(?:export )?(?:abstract )?class (\w+)[^\n]*\{\n([\s\S]*?)^\}/gm)) {
      const members = body!.matchAll(
        /^ {2}(?:(?:readonly|static|async|get|set|override) )*([A-Za-z_]\w*)\s*[(:=;<?!]/gm,
      );
      for (const [, member] of members) {
        if (member !== 'constructor' && uses.get(member!) === 1) found.push(`${name}.${member}`);
      }
    }
  }
  return found.sort();
}

it('no member of a class is named nowhere else in the source', () => {
  const files = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' }).filter((file) =>
    /\.tsx?$/.test(file),
  );
  const sources = files.map((file) => readFileSync(join(ROOT, 'src', file), 'utf8'));
  expect(sources.join('').match(/^(export )?class /gm)!.length).toBeGreaterThan(100);
  expect(unnamedMembers(sources)).toEqual(OFFERED);
  const probe =
    'export class Probe {\n  readonly usedHere = 1;\n  neverCalledByAnyone(): void {}\n}\nnew Probe().usedHere;\n';
  expect(unnamedMembers([...sources, probe])).toContain('Probe.neverCalledByAnyone');
});
