/** Creates event contents (platform 6.3): objects with the members listed in the table in the specification. */
import type { HealthCondition, Kind, SiteEvent, SiteRecords } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';

type StatusKind = 'asset_statuses' | 'product_statuses';

/**
 * Returns the content for an object that appeared or disappeared, with the user. A node is identified by its tag when
 * it appears and by its name when it disappears.
 */
export function accessContent(
  site: SiteModel,
  event: 'asset' | 'instrumentation' | 'node',
  id: number,
  user: number,
  appeared: boolean,
): Record<string, unknown> {
  const { href } = site.reference(`${event}s`, id);
  const node = event === 'node' ? site.get('nodes', id) : undefined;
  const name = {
    asset: { serial_number: site.get('assets', id)?.serial_number ?? '' },
    instrumentation: { tag: site.get('instrumentations', id)?.tag ?? '' },
    node: appeared ? { tag: node?.tag ?? '' } : { name: node?.name ?? '' },
  }[event];
  return { [event]: { id, ...name, href }, user: site.reference('users', user) };
}

export function statusContent(site: SiteModel, kind: StatusKind, id: number) {
  const { code = '', name = '', description = null, tenant } = site.get(kind, id) ?? {};
  return { id, code, name, description, tenant: tenant === undefined ? null : site.reference('tenants', tenant) };
}

export function conditionContent(site: SiteModel, condition: HealthCondition) {
  return {
    diagnosis_code: condition.diagnosis_code,
    id: condition.id,
    asset_status: site.reference('asset_statuses', condition.asset_status),
    channel: condition.channel ?? null,
    module: condition.module ?? null,
    links: { causes: { href: `${site.baseUrl}/v1/health_conditions/${condition.id}/causes` } },
  };
}

export function eventContent(site: SiteModel, event: SiteEvent) {
  const coded = (kind: 'event_types' | 'event_statuses', id: number) => ({
    ...site.reference(kind, id),
    code: site.get(kind, id)?.code ?? '',
  });
  const references = (kind: Kind, ids: readonly number[]) => ids.map((id) => site.reference(kind, id));
  return {
    ...site.reference('events', event.id),
    name: event.name,
    responsible: event.responsible ?? null,
    type: coded('event_types', event.type),
    status: event.status === undefined ? null : coded('event_statuses', event.status),
    assets: references('assets', event.assets),
    instrumentations: references('instrumentations', event.instrumentations),
    documents: references('documents', event.documents),
  };
}

export function productContent(site: SiteModel, product: SiteRecords['products'], status: number) {
  return {
    ...site.reference('products', product.id),
    product_code: product.product_code,
    phase_out_date: product.phase_out_date ?? null,
    order_stop_date: product.order_stop_date ?? null,
    spare_parts_until: product.spare_parts_until ?? null,
    spare_sensors_until: product.spare_sensors_until ?? null,
    repair_until: product.repair_until ?? null,
    calibration_until: product.calibration_until ?? null,
    name: product.name,
    status: { ...site.reference('product_statuses', status), ...statusContent(site, 'product_statuses', status) },
  };
}

export function addOnContent(site: SiteModel, addOn: number, node: number, subscription: SiteRecords['subscriptions']) {
  return {
    add_on: { id: addOn },
    node: site.reference('nodes', node),
    subscription: {
      id: subscription.id,
      display_name: subscription.display_name,
      user: { id: subscription.user, email: site.get('users', subscription.user)?.email ?? null },
      billing_address: subscription.billing_address ?? null,
      material_number: subscription.material_number ?? null,
      href: site.reference('subscriptions', subscription.id).href,
    },
  };
}
