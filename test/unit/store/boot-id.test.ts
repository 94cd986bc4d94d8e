import { describe, expect, it } from 'vitest';
import { bootId } from '../../../src/store/boot-id.ts';

describe('monotonic clock ID', () => {
  const files = (boot: string | undefined, offsets: string | undefined) => (path: string) => {
    const text = path.endsWith('boot_id') ? boot : offsets;
    if (text === undefined) throw new Error('ENOENT');
    return text;
  };

  it('is the boot ID, but differs in each time namespace with an offset', () => {
    const zero = 'monotonic           0         0\nboottime            0         0\n';
    expect(bootId(files('b1\n', zero))).toBe('b1');
    expect(bootId(files('b1\n', undefined))).toBe('b1');
    const other = bootId(files('b1\n', zero.replace('monotonic           0', 'monotonic     -100000')));
    expect(other).not.toBe('b1');
    expect(bootId(files('b1\n', zero.replace('monotonic           0', 'monotonic     -100000')))).toBe(other);
  });

  it('differs on each read, even within a process, if the boot ID is unreadable', () => {
    expect(bootId(files(undefined, undefined))).not.toBe(bootId(files(undefined, undefined)));
    expect(bootId(files('\n', undefined))).not.toBe(bootId(files('\n', undefined)));
  });
});
