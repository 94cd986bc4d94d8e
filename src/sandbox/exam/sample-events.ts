import { EVENT_TYPES, type EventType } from '../../contract/events.ts';
import { Sandbox } from '../sandbox.ts';

/** A payload of each of the 23 types, as a sandbox of its own sends it: one that never listens. */
export function sampleEvents(): ReadonlyMap<EventType, string> {
  return new Map(EVENT_TYPES.map((type) => [type, sampleOf(type)]));
}

/** In a site of its own, for what one type takes away another may need. */
function sampleOf(type: EventType): string {
  const sandbox = new Sandbox({ sendWebhook: async () => 204 });
  sandbox.site.baseUrl = 'https://platform.example';
  sandbox.webhookRegistry.add({
    application: sandbox.site.all('client_applications')[0]!.id,
    url: 'https://receiver.example/',
    event_types: [type],
    disabled: false,
    secret: 'none',
  });
  sandbox.cause(type);
  const { payload } = sandbox.deliveries()[0]!;
  void sandbox.stop();
  return payload;
}
