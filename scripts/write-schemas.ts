import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { reactionsSchema } from '../src/config/reactions-schema.ts';
import { tagsSchema } from '../src/config/tags-schema.ts';
import { ACTION_KINDS } from '../src/reactions/actions.ts';
import { SOURCE_KINDS } from '../src/sources/kinds.ts';

/** `node scripts/write-schemas.ts [FOLDER]` writes `config/schema/` from the schemas that `tagferry check` uses. */
const folder = process.argv[2] ?? join(import.meta.dirname, '../config/schema');
mkdirSync(folder, { recursive: true });
for (const [name, schema] of [
  ['tags', tagsSchema(SOURCE_KINDS)],
  ['reactions', reactionsSchema(ACTION_KINDS)],
] as const) {
  writeFileSync(join(folder, `${name}.schema.json`), `${JSON.stringify(schema, null, 2)}\n`);
}
