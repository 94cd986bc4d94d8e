declare module 'systemd-notify' {
  interface NotifyOptions {
    ready?: boolean;
    status?: string;
    pid?: number;
  }
  function notify(options: NotifyOptions): Promise<void>;
  export default notify;
}
