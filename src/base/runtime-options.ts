/**
 * Options of the runtime with which the agent runs. Memory is more important than speed on a gateway. The package's command
 * (`scripts/deb/wrapper`) passes the same ones and so saves the second start of the runtime.
 */
const RUNTIME_FLAGS: readonly string[] = [
  // A small young generation.
  '--max-semi-space-size=1',
  // One collection of the garbage that startup leaves.
  '--expose-gc',
  // A heap that is built at startup takes 8 MB less than one that is read from the binary.
  '--no-node-snapshot',
];

const RUNTIME_VARIABLES: Readonly<Record<string, string>> = {
  // The C library would have an arena for each thread.
  MALLOC_ARENA_MAX: '2',
  // Arenas return free memory at their end.
  MALLOC_TRIM_THRESHOLD_: '131072',
  // Bytes from a socket are allocated outside of the arenas, where they would leave gaps.
  MALLOC_MMAP_THRESHOLD_: '32768',
};

/** Replaces this process by the same one with the options for the agent, unless it has them. Options that the user has set win. */
export function useRuntimeOptions(): void {
  const { execPath, execArgv, argv, env } = process;
  const hasFlags = RUNTIME_FLAGS.every((flag) => execArgv.includes(flag));
  const hasVariables = Object.keys(RUNTIME_VARIABLES).every((name) => name in env);
  if (hasFlags && hasVariables) return;
  const flags = [...RUNTIME_FLAGS.filter((flag) => !execArgv.includes(flag)), ...execArgv];
  process.execve?.(execPath, [execPath, ...flags, ...argv.slice(1)], { ...RUNTIME_VARIABLES, ...env });
}
