import type { StatusReport } from '../ops/status-report.ts';
import { eventLinks, type FlowLink, LINK_TEXTS, valueLinks } from './flow.ts';
import { Shape } from './parts/shape.tsx';

/** Overview of value and event flow, readable from a distance. */
export function FlowPicture({ now }: { now: StatusReport }) {
  return (
    <section class="flow" aria-label="flow of values and events">
      <Links links={valueLinks(now)} />
      <Links links={eventLinks(now)} />
    </section>
  );
}

function Links({ links }: { links: FlowLink[] }) {
  return (
    <ol>
      {links.map((link, at) => (
        <li key={link.to} aria-label={`${link.from} to ${link.to}`}>
          {at === 0 && <span class="node">{link.from}</span>}
          <span class={`link ${link.kind}`} title={link.why}>
            <strong>
              <Shape name={link.kind} /> {link.words ?? LINK_TEXTS[link.kind]}
            </strong>
            <span class="arrow" aria-hidden="true" />
            <span class="rate">{link.rate}</span>
            {link.why && <span class="why">{link.why}</span>}
          </span>
          <span class="node">{link.to}</span>
        </li>
      ))}
    </ol>
  );
}
