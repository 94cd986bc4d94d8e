import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');

/** Members that only tests use. */
const OFFERED = ['Stage.isDeliveryIdle', 'ValueLedger.onRecord'];

/**
 * Returns class members that occur in the source only where they are declared. Only names are compared, so a member
 * whose name also occurs in another class is not found.
 */
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

it('every class member is used somewhere in the source', () => {
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
