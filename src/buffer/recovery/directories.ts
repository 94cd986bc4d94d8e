/**
 * Rebuilds unreadable directories from their segments, each of which contains its series and place. The acceptance time
 * is taken from the neighbouring spans. The run is taken from them only if both have the same run.
 */

import type { Database } from '../../base/database.ts';
import { readable } from '../format/bytes.ts';
import { lastTimeOf, unpackSegment } from '../format/segment.ts';
import { MAX_ENTRIES, newSpan, packDirectory, packGone, type SpanEntry } from '../span.ts';
import { type Statements, spanSum } from '../tables.ts';

interface Found extends SpanEntry {
  entry: number;
  place: number;
}

interface Neighbour {
  run: number;
  accepted_ms: number;
}

/** Unknown run; run numbers start at 1. */
const UNKNOWN: Neighbour = { run: 0, accepted_ms: 0 };

/** Creates a directory for each span that has segments and no directory. */
export function rebuildDirectories(database: Database, statements: Statements): void {
  const spanOf = `id >> ${Math.log2(MAX_ENTRIES)}`;
  const orphaned = database
    .prepare<[], number>(`SELECT DISTINCT ${spanOf} FROM segment WHERE ${spanOf} NOT IN (SELECT id FROM span)`)
    .pluck()
    .all();
  const segments = database
    .prepare<[number, number], [number, Buffer]>('SELECT id, packed FROM segment WHERE id BETWEEN ? AND ? ORDER BY id')
    .raw();
  for (const id of orphaned) {
    const first = id * MAX_ENTRIES;
    const found: Found[] = [];
    for (const [segment, packed] of segments.iterate(first, first + MAX_ENTRIES - 1)) {
      const values = readable(() => unpackSegment(packed));
      if (!values) continue;
      const { series, place, count } = values;
      found.push({ entry: segment - first, series, place, count, lastTimeMs: lastTimeOf(values), leadSeconds: 0 });
    }
    if (found.length > 0) writeSpan(database, statements, id, found);
  }
}

function writeSpan(database: Database, statements: Statements, id: number, found: readonly Found[]): void {
  const place = found[0]!.place;
  const [before, behind] = ['<= ? ORDER BY place DESC', '>= ? ORDER BY place'].map((where) =>
    database.prepare<[number], Neighbour>(`SELECT run, accepted_ms FROM span WHERE place ${where} LIMIT 1`).get(place),
  );
  const { run, accepted_ms: acceptedMs } = before?.run === behind?.run && before ? before : UNKNOWN;
  // Entries without a segment are marked as gone and are assigned the series of their neighbour.
  const entries: SpanEntry[] = [];
  for (const one of found) {
    while (entries.length < one.entry) entries.push({ series: one.series, count: 0, lastTimeMs: 0, leadSeconds: 0 });
    entries.push(one);
  }
  const span = newSpan({ id, place, run, acceptedMs }, entries);
  span.gone.fill(1);
  for (const { entry } of found) span.gone[entry] = 0;
  statements.addSpan.run(id, place, run, acceptedMs, packDirectory(span), spanSum(id, place, run, acceptedMs));
  statements.setGone.run(id, packGone(span));
}
