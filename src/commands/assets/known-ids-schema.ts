/** The schema of tags.yaml for editors, with the ids that this gateway knows. */
import { lstatSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { SchemaObject } from 'ajv';
import type { ObjectLine } from '../../access/known-objects.ts';
import { counted } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { tagsSchema } from '../../config/tags-schema.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { addShippedSchemas, writeWhole } from '../setup/configuration-files.ts';

/**
 * Writes `schema/tags.schema.json` of the configuration folder. A link to the schemas of the package becomes a folder of its own.
 * Returns a sentence for the operator. Throws `setup.unwritable`.
 */
export function writeKnownIds(directory: string, objects: readonly ObjectLine[]): string {
  const folder = join(directory, 'schema');
  if (lstatSync(folder, { throwIfNoEntry: false })?.isSymbolicLink()) unlinkSync(folder);
  addShippedSchemas(directory);
  const path = join(folder, 'tags.schema.json');
  writeWhole(path, `${JSON.stringify(schemaWithIds(objects), null, 2)}\n`, 0o644);
  const count = (kind: string) => objects.filter((one) => one.kind === kind).length;
  return `Wrote ${path}: ${counted(count('asset'), 'asset')}, ${counted(count('instrumentation'), 'instrumentation')}.`;
}

/** Editors offer known ids with their names. An unknown id stays valid. */
function schemaWithIds(objects: readonly ObjectLine[]): SchemaObject {
  const schema = structuredClone(tagsSchema(SOURCE_KINDS));
  const { properties } = schema.properties.tags.additionalProperties;
  for (const kind of ['asset', 'instrumentation']) {
    const known = objects.filter((one) => one.kind === kind);
    if (known.length === 0) continue;
    const { examples: _, ...any } = properties[kind];
    const ids = known.map((one) => ({ const: one.id, description: descriptionOf(one) }));
    properties[kind] = { ...any, anyOf: [...ids, { type: 'integer' }] };
  }
  return schema;
}

function descriptionOf({ serial_number, tag, name, state }: ObjectLine): string {
  const names = [
    ...(serial_number === null ? [] : [`serial number ${plain(serial_number)}`]),
    ...(tag === null ? [] : [`tag ${plain(tag)}`]),
    ...(name === null ? [] : [plain(name)]),
  ];
  return [...names, state].join(', ');
}
