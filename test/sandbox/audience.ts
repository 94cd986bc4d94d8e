import { afterEach, beforeEach } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Receiver } from './receiver.ts';
import { Visitor } from './visitor.ts';

/** The webhooks of the client application that the visitor signs in with. */
export const WEBHOOKS = '/v1/client_applications/3/webhooks';

/** A sandbox, somebody who is signed in, and a receiver of webhooks: made anew for each test of the file that asks for them. */
export interface Audience {
  sandbox: Sandbox;
  visitor: Visitor;
  receiver: Receiver;
  register(event_types: readonly string[], more?: object): ReturnType<Visitor['call']>;
}

export function audience(): Audience {
  const one = {
    register: (event_types: readonly string[], more: object = {}) =>
      one.visitor.call('POST', WEBHOOKS, { url: one.receiver.url, event_types, ...more }),
  } as Audience;
  beforeEach(async () => {
    one.sandbox = new Sandbox();
    one.receiver = new Receiver();
    await one.sandbox.start();
    await one.receiver.start();
    one.visitor = await Visitor.signedIn(one.sandbox);
  });
  afterEach(async () => {
    await one.sandbox.stop();
    await one.receiver.stop();
  });
  return one;
}
