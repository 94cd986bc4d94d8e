import type { ChangeRoom } from './change-room.ts';

/** Told to users that may read an asset of the product: that is the sandbox's reading of "has an asset linked" (spec 6.3). */
export function setProductStatus(room: ChangeRoom, id: number, status: number): void {
  const product = room.found('products', id);
  const { tenant, ...shown } = room.found('product_statuses', status);
  if (product.status === status) return;
  product.status = status;
  room.told(`the product ${product.name} is now ${shown.code}`);
  const assets = room.plant.all('assets').filter((asset) => asset.product === id);
  room.announcer.announce({
    type: 'product_status_changed',
    audience: (user) => assets.some((asset) => room.mayRead(user, { type: 'Asset', id: asset.id })),
    content: () => ({
      product: {
        ...room.plant.reference('products', id),
        product_code: product.product_code,
        phase_out_date: product.phase_out_date ?? null,
        order_stop_date: product.order_stop_date ?? null,
        spare_parts_until: product.spare_parts_until ?? null,
        spare_sensors_until: product.spare_sensors_until ?? null,
        repair_until: product.repair_until ?? null,
        calibration_until: product.calibration_until ?? null,
        name: product.name,
        status: {
          ...room.plant.reference('product_statuses', status),
          code: shown.code,
          name: shown.name,
          description: shown.description ?? null,
          tenant: tenant === undefined ? null : room.plant.reference('tenants', tenant),
        },
      },
    }),
  });
}

/** Links an add-on to a node, or ends the link. */
export function setAddOnLink(room: ChangeRoom, addOn: number, node: number, isLinked: boolean): void {
  const record = room.found('add_ons', addOn);
  const { name } = room.found('nodes', node);
  if (record.nodes.includes(node) === isLinked) return;
  const subscription = room.found('subscriptions', record.subscription);
  record.nodes = isLinked ? [...record.nodes, node] : record.nodes.filter((id) => id !== node);
  room.told(`add-on ${addOn} is ${isLinked ? 'linked to' : 'taken from'} the node ${name}`);
  const user = room.plant.get('users', subscription.user);
  room.tell(`add_on_node_association_${isLinked ? 'created' : 'destroyed'}`, { type: 'Node', id: node }, () => ({
    add_on: { id: addOn },
    node: room.plant.reference('nodes', node),
    subscription: {
      id: subscription.id,
      display_name: subscription.display_name,
      user: { id: subscription.user, email: user?.email ?? null },
      billing_address: subscription.billing_address ?? null,
      material_number: subscription.material_number ?? null,
      href: room.plant.reference('subscriptions', subscription.id).href,
    },
  }));
}
