import { StoreError } from '../../base/errors.ts';

/** What is read; `undefined` where a row is not what its checksum says, or otherwise none of ours. */
export function readable<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof StoreError) return undefined;
    throw error;
  }
}
