import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../../src/sandbox');

/** The first circle of imports, types included, as a list of files. */
function circleIn(imports: ReadonlyMap<string, readonly string[]>): string[] | undefined {
  const done = new Set<string>();
  const visit = (file: string, way: readonly string[]): string[] | undefined => {
    const at = way.indexOf(file);
    if (at >= 0) return [...way.slice(at), file];
    if (done.has(file)) return undefined;
    for (const next of imports.get(file) ?? []) {
      const circle = visit(next, [...way, file]);
      if (circle) return circle;
    }
    done.add(file);
    return undefined;
  };
  for (const file of imports.keys()) {
    const circle = visit(file, []);
    if (circle) return circle;
  }
  return undefined;
}

describe('the contexts of the sandbox', () => {
  it('import one another in no circle, type imports included', () => {
    const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
    const imports = new Map(
      files.map((file) => {
        const text = readFileSync(join(ROOT, file), 'utf8');
        const found = [...text.matchAll(/from\s+'(\.{1,2}\/[^']+\.ts)'/g)];
        return [file, found.map((match) => normalize(join(dirname(file), match[1]!)))] as const;
      }),
    );
    expect(imports.get('sandbox.ts')!.length).toBeGreaterThan(10);
    expect(circleIn(imports)).toBeUndefined();
    expect(circleIn(new Map([...imports, ['admin/stage.ts', ['sandbox.ts']]]))).toContain('sandbox.ts');
  });
});
