import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REACTIONS_SCHEMA } from '../src/config/reactions-schema.ts';
import { tagsSchema } from '../src/config/tags-schema.ts';
import { SOURCE_KINDS } from '../src/sources/kinds.ts';

/** Writes `config/schema/` from the schemas that `tagferry check` goes by: `node scripts/write-schemas.ts [FOLDER]`. */
const folder = process.argv[2] ?? join(import.meta.dirname, '../config/schema');
mkdirSync(folder, { recursive: true });
for (const [name, schema] of [
  ['tags', tagsSchema(SOURCE_KINDS)],
  ['reactions', REACTIONS_SCHEMA],
] as const) {
  writeFileSync(join(folder, `${name}.schema.json`), `${JSON.stringify(schema, null, 2)}\n`);
}
