/**
 * State of a Sparkplug host application that a client announces on one topic, retained and through its will (Eclipse
 * Sparkplug 3.0, chapter 5.9). Edge nodes ignore a message that is older than the latest one, so the will and the
 * announcements of a connection have the same timestamp. Only a contradiction can have a later one; edge nodes then
 * ignore the will of this connection, which cannot be changed.
 */
import type { Connection } from './connection.ts';

export interface PresenceMessage {
  topic: string;
  payload: string;
}

export class Presence {
  readonly #topic: string | undefined;
  /** Time since which the state applies, in milliseconds since 1970. */
  #sinceMs = 0;
  /** Latest connection on which the application was announced as online. */
  #announcedOn: Connection | undefined;

  /** Without a topic, nothing is announced. */
  constructor(topic: string | undefined) {
    this.#topic = topic;
  }

  /** Returns the will of a connection that is opened now. */
  will(wallMs: number): PresenceMessage | undefined {
    this.#sinceMs = Math.max(this.#sinceMs, Math.round(wallMs));
    return this.#message(false);
  }

  async announce(connection: Connection, isOnline: boolean): Promise<void> {
    const message = this.#message(isOnline);
    if (message === undefined) return;
    this.#announcedOn = connection;
    // If publishing fails, the connection has ended, and the will reports the state.
    await connection.publish(message.topic, message.payload, true).catch(() => {});
  }

  /**
   * Announces the application as online again after another client announced it as offline, with a timestamp that is
   * not older. Returns whether it did: before the first announcement on a connection, that announcement follows anyway.
   */
  contradict(connection: Connection | undefined, offlineSinceMs: number): boolean {
    if (connection === undefined || connection !== this.#announcedOn) return false;
    this.#sinceMs = Math.max(this.#sinceMs, offlineSinceMs);
    void this.announce(connection, true);
    return true;
  }

  #message(isOnline: boolean): PresenceMessage | undefined {
    if (this.#topic === undefined) return undefined;
    return { topic: this.#topic, payload: JSON.stringify({ online: isOnline, timestamp: this.#sinceMs }) };
  }
}
