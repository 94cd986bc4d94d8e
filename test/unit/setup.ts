/** Makes child processes fail: tests of this layer run in the process, on any machine, and are deterministic. */
import childProcess, { ChildProcess } from 'node:child_process';
import { syncBuiltinESMExports } from 'node:module';

function reject(): never {
  throw new Error('test/unit starts no processes: move the test to test/e2e, or use test/fixtures/certificates');
}

(ChildProcess.prototype as unknown as { spawn(): never }).spawn = reject;
childProcess.spawnSync = reject as never;
childProcess.execFileSync = reject as never;
childProcess.execSync = reject as never;
syncBuiltinESMExports();
