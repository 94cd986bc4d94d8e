/** The package contains no types. `pid` and `booted` are left out because the agent does not use them. */
declare module 'systemd-notify' {
  interface NotifyOptions {
    ready?: boolean;
    status?: string;
  }
  /** Runs `systemd-notify` with the PID of this process. Rejects with an error, or with the output of the program. */
  function notify(options: NotifyOptions): Promise<unknown>;
  export default notify;
}
