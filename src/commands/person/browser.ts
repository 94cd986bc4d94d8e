import { spawn } from 'node:child_process';

/** Whether a browser that opens here is one that the person sees: not over SSH, not without a display. */
export function hasBrowser(environment: NodeJS.ProcessEnv, platform: NodeJS.Platform = process.platform): boolean {
  if (environment.SSH_CONNECTION || environment.SSH_TTY) return false;
  return platform === 'darwin' || Boolean(environment.DISPLAY || environment.WAYLAND_DISPLAY);
}

/** Asks the desktop to open an address, without a shell; whether it could be asked. The address is printed anyway. */
export function openBrowser(address: URL): Promise<boolean> {
  const program = process.platform === 'darwin' ? 'open' : 'xdg-open';
  return new Promise((resolve) => {
    const child = spawn(program, [address.href], { detached: true, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('spawn', () => resolve(true));
    child.unref();
  });
}
