import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StoreError } from '../../../src/base/errors.ts';
import { SessionFile, type StoredToken } from '../../../src/platform/session/session-file.ts';

let folder: string;
let path: string;
let file: SessionFile;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-session-file-'));
  path = join(folder, 'session.json');
  file = new SessionFile(folder);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const ONE: StoredToken = { accessToken: 'a', refreshToken: 'r', expiresWallMs: 1_000 };
const TWO: StoredToken = { accessToken: 'b', refreshToken: undefined, expiresWallMs: -1 };

async function failureOf(work: Promise<unknown>): Promise<unknown> {
  const error = await work.then(
    () => undefined,
    (reason: StoreError) => reason,
  );
  expect(error).toBeInstanceOf(StoreError);
  const { message, code, retryable, cause, hint } = error as StoreError;
  return { message, code, retryable, hint, cause: (cause as { code?: string } | undefined)?.code };
}
const failure = (what: string, cause?: string) => ({
  message: `${path} ${what}`,
  code: 'session.file',
  retryable: true,
  hint: 'Check the owner, mode and free space of STATE_DIR.',
  cause,
});

describe('session file', () => {
  it('contains unencrypted tokens readable only by its owner, and leaves no temporary file', async () => {
    await file.write([ONE, TWO]);
    expect(readFileSync(path, 'utf8')).toBe(
      '{"version":1,"tokens":[{"accessToken":"a","refreshToken":"r","expiresWallMs":1000},' +
        '{"accessToken":"b","expiresWallMs":-1}]}\n',
    );
    expect([statSync(path).mode & 0o777, readdirSync(folder)]).toEqual([0o600, ['session.json']]);
    expect(await file.read()).toEqual([ONE, TWO]);
  });

  it('is absent if there are no tokens', async () => {
    expect(await file.read()).toEqual([]);
    await file.write([ONE]);
    await file.write([]);
    expect(existsSync(path)).toBe(false);
    await file.write([]);
    expect(await file.read()).toEqual([]);
  });

  it('contains the latest of several concurrent writes', async () => {
    await Promise.all([file.write([ONE, TWO]), file.write([]), file.write([ONE]), file.write([]), file.write([TWO])]);
    expect(await file.read()).toEqual([TWO]);
    await Promise.all([file.write([ONE]), file.write([])]);
    expect(existsSync(path)).toBe(false);
  });

  it('yields valid tokens, without invalid entries', async () => {
    const tokens = [
      ONE,
      null,
      7,
      'a',
      [],
      {},
      { ...ONE, accessToken: '' },
      { ...ONE, accessToken: 7 },
      { ...ONE, refreshToken: 7 },
      { ...ONE, refreshToken: null },
      { ...ONE, expiresWallMs: '1000' },
      { accessToken: 'a' },
      TWO,
    ];
    writeFileSync(path, JSON.stringify({ version: 1, tokens }));
    expect(await file.read()).toEqual([ONE, TWO]);
  });

  it.each(['', '{"version":1,"tokens":[{"accessToken":"secret', '{}', '{"tokens":{}}', '{"tokens":"a"}', 'null', '7'])(
    'with invalid content is reported without quoting it: %s',
    async (text) => {
      writeFileSync(path, text);
      expect(await failureOf(file.read())).toEqual(failure('does not contain tokens'));
    },
  );

  it('reports the cause if it cannot be read, written or removed, and is written as soon as possible', async () => {
    mkdirSync(path);
    expect(await failureOf(file.read())).toEqual(failure('cannot be read', 'EISDIR'));
    const [written, removed] = [file.write([ONE]), file.write([])];
    expect(await failureOf(written)).toEqual(failure('cannot be written', 'EISDIR'));
    expect(await failureOf(removed)).toEqual(failure('cannot be removed', 'ERR_FS_EISDIR'));
    rmSync(path, { recursive: true });
    await file.write([ONE]);
    expect(await file.read()).toEqual([ONE]);
  });
});
