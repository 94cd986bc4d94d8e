import type { EdgeDevice } from '../site/records.ts';
import { updateEdgeDevice } from './attribute-changes.ts';
import type { ChangeContext } from './change-context.ts';

/**
 * Signs of life of edge devices. Platform 6.3 and 3.4: the status "goes automatically to offline", when is not shown: here
 * after `offlineAfterMs` of the sandbox's time without a sign. Only devices that were ever seen are watched, so that a
 * site from a seed stays as it was written.
 */
export class EdgeDeviceWatch {
  readonly #context: ChangeContext;
  readonly #offlineAfterMs: number;

  constructor(context: ChangeContext, offlineAfterMs: number) {
    this.#context = context;
    this.#offlineAfterMs = offlineAfterMs;
  }

  /** The device was seen now: online, where there is such a status. */
  seen(id: number): void {
    const online = this.#statusOf('online');
    updateEdgeDevice(this.#context, id, {
      last_seen_at: this.#context.now(),
      ...(online === undefined ? {} : { status: online }),
    });
    this.#wait(id, this.#offlineAfterMs);
  }

  /** Goes on with what a state file brought back. */
  resume(): void {
    for (const device of this.#context.site.all('edge_devices')) {
      if (device.last_seen_at !== undefined) this.#wait(device.id, this.#leftMs(device));
    }
  }

  #wait(id: number, delayMs: number): void {
    if (this.#offlineAfterMs <= 0) return;
    this.#context.clock.after(Math.max(0, delayMs), () => this.#look(id));
  }

  /** A later sign of life has a timer of its own, so this one just finds that time is left. */
  #look(id: number): void {
    const device = this.#context.site.get('edge_devices', id);
    const offline = this.#statusOf('offline');
    if (!device || offline === undefined || device.status === offline || this.#leftMs(device) > 0) return;
    updateEdgeDevice(this.#context, id, { status: offline });
  }

  #leftMs(device: EdgeDevice): number {
    const seenMs = Date.parse(device.last_seen_at ?? '');
    return Number.isNaN(seenMs) ? 0 : seenMs + this.#offlineAfterMs - this.#context.clock.wallMs();
  }

  #statusOf(code: string): number | undefined {
    return this.#context.site.all('edge_device_statuses').find((status) => status.code === code)?.id;
  }
}
