/**
 * Detects lost commits in a WAL. SQLite treats the first frame with a wrong checksum as the end of the WAL, as after a
 * power cut during a commit. It silently ignores synced frames after that frame.
 *
 * Two facts distinguish damage from a torn commit. The WAL index (`-shm`) left by a killed process contains the number
 * of committed frames. Since every commit is synced before the next, no frames of the same round follow a torn commit.
 */
import { readFileSync, statSync } from 'node:fs';

const HEADER = 32;
const FRAME_HEADER = 24;
/** Offset of the database size in a frame header; not 0 if the frame ends a commit. */
const COMMIT_AT = 4;

export function walLostCommits(path: string, pageBytes: number): boolean {
  const wal = read(`${path}-wal`);
  // SQLite deletes the WAL of an empty file without reading it.
  if (wal.length > HEADER && (statSync(path, { throwIfNoEntry: false })?.size ?? 0) < pageBytes) return true;
  const index = readIndex(read(`${path}-shm`));
  const isHeader = wal.length >= HEADER && (wal.readUInt32BE(0) & 0xffff_fffe) >>> 0 === 0x377f_0682;
  const valid = isHeader ? validFrames(wal, pageBytes) : undefined;
  if (index && (valid === undefined || wal.subarray(16, 24).equals(index.salt))) {
    return index.frames > index.inDatabase && (valid ?? 0) < index.frames;
  }
  const behind = commitsFrom(wal, pageBytes, valid ?? 0);
  // Without a valid header, SQLite reads no frames. With a valid header, only the last commit may have been torn.
  return valid === undefined ? behind > 0 : behind > 1;
}

function read(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch {
    return Buffer.alloc(0);
  }
}

/** Reads the header of the index, which is stored twice. `frames` is the number of frames up to the last commit. */
function readIndex(shm: Buffer): { frames: number; inDatabase: number; salt: Buffer } | undefined {
  if (shm.length < 100 || !shm.subarray(0, 48).equals(shm.subarray(48, 96)) || shm[12] !== 1) return undefined;
  return { frames: shm.readUInt32LE(16), inDatabase: shm.readUInt32LE(96), salt: shm.subarray(32, 40) };
}

/** Returns the number of frames with a valid running checksum; `undefined` if the header is invalid. */
function validFrames(wal: Buffer, pageBytes: number): number | undefined {
  const isBig = (wal.readUInt32BE(0) & 1) === 1;
  const sum: [number, number] = [0, 0];
  addSum(sum, wal, 0, 24, isBig);
  if (!fits(sum, wal, 24)) return undefined;
  const size = FRAME_HEADER + pageBytes;
  let valid = 0;
  for (let at = HEADER; at + size <= wal.length; at += size) {
    addSum(sum, wal, at, 8, isBig);
    addSum(sum, wal, at + FRAME_HEADER, pageBytes, isBig);
    if (!wal.subarray(at + 8, at + 16).equals(wal.subarray(16, 24)) || !fits(sum, wal, at + 16)) break;
    valid++;
  }
  return valid;
}

/** SQLite's checksum: two running sums over pairs of 32-bit words. */
function addSum(sum: [number, number], bytes: Buffer, at: number, length: number, isBig: boolean): void {
  let [one, other] = sum;
  for (let i = at; i < at + length; i += 8) {
    const first = isBig ? bytes.readUInt32BE(i) : bytes.readUInt32LE(i);
    const second = isBig ? bytes.readUInt32BE(i + 4) : bytes.readUInt32LE(i + 4);
    one = (one + first + other) >>> 0;
    other = (other + second + one) >>> 0;
  }
  sum[0] = one;
  sum[1] = other;
}

const fits = (sum: [number, number], bytes: Buffer, at: number) =>
  bytes.readUInt32BE(at) === sum[0] && bytes.readUInt32BE(at + 4) === sum[1];

/** Returns the number of commits after the first `skip` frames with the same salt. */
function commitsFrom(wal: Buffer, pageBytes: number, skip: number): number {
  const size = FRAME_HEADER + pageBytes;
  const salt = wal.subarray(HEADER + 8, HEADER + 16);
  let commits = 0;
  for (let at = HEADER + skip * size; at + size <= wal.length; at += size) {
    if (wal.subarray(at + 8, at + 16).equals(salt) && wal.readUInt32BE(at + COMMIT_AT) > 0) commits++;
  }
  return commits;
}
