import type { ChangeContext } from './change-context.ts';

/** Told to users that may read an asset of the product: that is the sandbox's reading of "has an asset linked" (platform 6.3). */
export function setProductStatus(context: ChangeContext, id: number, status: number): void {
  const product = context.found('products', id);
  const { tenant, ...shown } = context.found('product_statuses', status);
  if (product.status === status) return;
  product.status = status;
  context.report(`the product ${product.name} is now ${shown.code}`);
  const assets = context.site.all('assets').filter((asset) => asset.product === id);
  context.announcer.announce({
    type: 'product_status_changed',
    audience: (user) => assets.some((asset) => context.mayRead(user, { type: 'Asset', id: asset.id })),
    content: () => ({
      product: {
        ...context.site.reference('products', id),
        product_code: product.product_code,
        phase_out_date: product.phase_out_date ?? null,
        order_stop_date: product.order_stop_date ?? null,
        spare_parts_until: product.spare_parts_until ?? null,
        spare_sensors_until: product.spare_sensors_until ?? null,
        repair_until: product.repair_until ?? null,
        calibration_until: product.calibration_until ?? null,
        name: product.name,
        status: {
          ...context.site.reference('product_statuses', status),
          code: shown.code,
          name: shown.name,
          description: shown.description ?? null,
          tenant: tenant === undefined ? null : context.site.reference('tenants', tenant),
        },
      },
    }),
  });
}

/** Links an add-on to a node, or ends the link. */
export function setAddOnLink(context: ChangeContext, addOn: number, node: number, isLinked: boolean): void {
  const record = context.found('add_ons', addOn);
  const { name } = context.found('nodes', node);
  if (record.nodes.includes(node) === isLinked) return;
  const subscription = context.found('subscriptions', record.subscription);
  record.nodes = isLinked ? [...record.nodes, node] : record.nodes.filter((id) => id !== node);
  context.report(`add-on ${addOn} is ${isLinked ? 'linked to' : 'taken from'} the node ${name}`);
  const user = context.site.get('users', subscription.user);
  context.tell(`add_on_node_association_${isLinked ? 'created' : 'destroyed'}`, { type: 'Node', id: node }, () => ({
    add_on: { id: addOn },
    node: context.site.reference('nodes', node),
    subscription: {
      id: subscription.id,
      display_name: subscription.display_name,
      user: { id: subscription.user, email: user?.email ?? null },
      billing_address: subscription.billing_address ?? null,
      material_number: subscription.material_number ?? null,
      href: context.site.reference('subscriptions', subscription.id).href,
    },
  }));
}
