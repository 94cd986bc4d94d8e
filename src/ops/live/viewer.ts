import type { ServerResponse } from 'node:http';
import type { Sight, Topic } from './live-events.ts';

/** Who does not read so much meanwhile is ended, and comes again where it stopped. */
const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

/** One page that looks: a response that goes on until one of both ends it. */
export class Viewer {
  readonly topics: ReadonlySet<Topic>;
  readonly sight: Sight;
  readonly #response: ServerResponse;
  /** Topics whose beginning it has got: what is new is for it from then on. */
  readonly begun = new Set<Topic>();

  constructor(response: ServerResponse, topics: ReadonlySet<Topic>, sight: Sight) {
    this.#response = response;
    this.topics = topics;
    this.sight = sight;
  }

  /** The topics, as the ids of the stream name them. */
  get topicsText(): string {
    return [...this.topics].join('+');
  }

  write(frames: string): void {
    const response = this.#response;
    if (response.writableEnded || response.destroyed || frames === '') return;
    response.write(frames);
    if (response.writableLength > MAX_UNREAD_BYTES) response.destroy();
  }

  end(): void {
    this.#response.end();
  }
}
