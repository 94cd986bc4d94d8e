/** What stands at the head of a backup. `SHA256SUMS` at its end says that it is whole: `tar xf FILE && sha256sum -c SHA256SUMS`. */
import { TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { FORMAT as BUFFER_FORMAT } from '../../buffer/tables.ts';

/** Changes with every change of what stands where in the archive. */
const FORMAT = 1;

export const MANIFEST = 'manifest.json';
export const SUMS = 'SHA256SUMS';
/** Of a file that is kept in memory while it is written or put in place: a configuration file, a certificate. */
export const MAX_SMALL_BYTES = 16_000_000;

export interface Manifest {
  tagferry_backup: number;
  made_by: string;
  /** ISO 8601. */
  made_at: string;
  host: string;
  secrets: boolean;
  /** `null` where no agent ever had the state folder. */
  state: { buffer_format: number; values: number; quarantined: number; events: number } | null;
  /** Files that the configuration names or holds and that are not in it, with the reason. */
  left_out: { file: string; why: string }[];
}

export function manifestOf(facts: Omit<Manifest, 'tagferry_backup'>): Manifest {
  return { tagferry_backup: FORMAT, ...facts };
}

/** Throws `restore.format` where another version has to read it, `archive.garbled` where it is none. */
export function readManifest(text: string): Manifest {
  let found: Partial<Manifest>;
  try {
    found = JSON.parse(text) as Partial<Manifest>;
  } catch (cause) {
    throw foreign(cause);
  }
  const { tagferry_backup: format, made_by: madeBy, state } = found;
  if (typeof format !== 'number' || typeof madeBy !== 'string' || state === undefined) throw foreign();
  const by = `tagferry ${plain(madeBy)}`;
  if (format !== FORMAT) {
    const age = format > FORMAT ? 'newer' : 'older';
    throw new TagferryError(
      `the backup was made by ${by} in format ${format}, which is ${age} than this tagferry reads (${FORMAT})`,
      {
        code: 'restore.format',
        hint: `Install ${by} here, restore, then upgrade.`,
      },
    );
  }
  if (state !== null && state.buffer_format > BUFFER_FORMAT) {
    throw new TagferryError(
      `the buffer in the backup is of ${by}, and its format ${state.buffer_format} is newer than this tagferry reads`,
      {
        code: 'restore.format',
        hint: `Install ${by} here, or a later one, then restore.`,
      },
    );
  }
  return found as Manifest;
}

function foreign(cause?: unknown): TagferryError {
  return new TagferryError('this is no backup of tagferry', { code: 'archive.garbled', cause });
}
