/** Reads server-sent events from a body that is fetched: `EventSource` cannot send a token. */

export interface ReceivedEvent {
  name: string;
  data: string;
  /** The last id that came, with this event or before it. */
  id: string | undefined;
}

/** An event that is longer was not sent by the gateway. */
const MAX_CHARACTERS = 16 * 1024 * 1024;

export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ReceivedEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let id: string | undefined;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      if (rest.length > MAX_CHARACTERS) throw new Error('an event of the stream has no end');
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const event = { name: 'message', data: '', id };
        for (const line of rest.slice(0, end).split('\n')) {
          if (line.startsWith('event: ')) event.name = line.slice(7);
          else if (line.startsWith('data: ')) event.data += line.slice(6);
          else if (line.startsWith('id: ')) id = event.id = line.slice(4);
        }
        rest = rest.slice(end + 2);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
