import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { memoryLimitBytes } from '../../../src/base/memory-limit.ts';

const MiB = 1024 * 1024;
const MACHINE = 4096 * MiB;

describe('memory limit', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'memory-limit-'));
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  const put = (file: string, text: string | number) => {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), `${text}\n`);
  };
  const limit = () => memoryLimitBytes({ root, totalBytes: MACHINE });

  it("is the machine's total memory if there is no cgroup limit", () => {
    expect(limit()).toBe(MACHINE);
    put('proc/self/cgroup', '0::/user.slice');
    put('sys/fs/cgroup/user.slice/memory.max', 'max');
    put('sys/fs/cgroup/user.slice/memory.high', 'max');
    expect(limit()).toBe(MACHINE);
  });

  it('is the smaller of memory.max and memory.high', () => {
    put('proc/self/cgroup', '0::/system.slice/tagferry.service');
    put('sys/fs/cgroup/system.slice/tagferry.service/memory.max', 192 * MiB);
    expect(limit()).toBe(192 * MiB);
    put('sys/fs/cgroup/system.slice/tagferry.service/memory.high', 176 * MiB);
    expect(limit()).toBe(176 * MiB);
  });

  it('is the smallest limit among a cgroup and its ancestors', () => {
    put('proc/self/cgroup', '0::/site.slice/tagferry.service');
    put('sys/fs/cgroup/site.slice/tagferry.service/memory.max', 192 * MiB);
    put('sys/fs/cgroup/site.slice/memory.max', 128 * MiB);
    expect(limit()).toBe(128 * MiB);
  });

  it('is read from version 1 cgroups, where the maximum value means no limit', () => {
    put('proc/self/cgroup', '8:pids:/x\n4:cpu,memory:/a:b/c\n0::/');
    put('sys/fs/cgroup/memory/a:b/c/memory.limit_in_bytes', 256 * MiB);
    put('sys/fs/cgroup/memory/memory.limit_in_bytes', '9223372036854771712');
    expect(limit()).toBe(256 * MiB);
  });

  it("is read from the mount point if a container sees the host's group path", () => {
    put('proc/self/cgroup', '4:memory:/docker/0123abc');
    put('sys/fs/cgroup/memory/memory.limit_in_bytes', 64 * MiB);
    expect(limit()).toBe(64 * MiB);
  });

  it('ignores invalid numbers', () => {
    put('proc/self/cgroup', 'nonsense\n0::/x');
    put('sys/fs/cgroup/x/memory.max', 'many');
    put('sys/fs/cgroup/x/memory.high', 0);
    expect(limit()).toBe(MACHINE);
  });

  it('is a positive number of bytes on the test machine', () => {
    expect(memoryLimitBytes()).toBeGreaterThan(16 * MiB);
  });
});
