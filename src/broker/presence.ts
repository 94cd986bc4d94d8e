/** What a host application says of itself: whether it is there, since when. Its will bears the time of its birth. */
export class Presence {
  readonly #topic: string;
  readonly #timestamp: number;

  constructor(topic: string, wallMs: number) {
    this.#topic = topic;
    this.#timestamp = Math.round(wallMs);
  }

  message(isThere: boolean): { topic: string; payload: string } {
    return { topic: this.#topic, payload: JSON.stringify({ online: isThere, timestamp: this.#timestamp }) };
  }
}
