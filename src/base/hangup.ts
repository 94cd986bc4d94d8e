let isReceived = false;
const remember = () => {
  isReceived = true;
};

/** Records SIGHUP, which terminates the process by default. Called before the agent's modules are loaded. */
export function rememberHangup(): void {
  process.on('SIGHUP', remember);
}

/** Calls the function for every subsequent SIGHUP, and once if SIGHUP was recorded earlier. */
export function onHangup(handle: () => void): void {
  process.on('SIGHUP', handle);
  process.off('SIGHUP', remember);
  if (isReceived) handle();
}
