import type { Answer, Call } from './call.ts';

/** How a route knows its caller: `bearer` tokens, nothing, or by itself (token endpoints). */
type RouteAuth = 'bearer' | 'none';

export interface Route {
  method: string;
  /** `/v1/assets/:id/values`. */
  pattern: string;
  auth: RouteAuth;
  /** Whether the call counts against rate limits and quota: every API call but the token endpoints. */
  counted: boolean;
  handle(call: Call): Answer | Promise<Answer>;
}

export interface Match {
  route: Route;
  params: Record<string, string>;
}

/** Finds the route of a request. Static segments win over parameters by the order of registration. */
export class Router {
  readonly #routes: { route: Route; segments: string[] }[] = [];

  add(
    method: string,
    pattern: string,
    handle: Route['handle'],
    options: Partial<Pick<Route, 'auth' | 'counted'>> = {},
  ) {
    const auth = options.auth ?? 'bearer';
    const route: Route = { method, pattern, handle, auth, counted: options.counted ?? auth === 'bearer' };
    this.#routes.push({ route, segments: pattern.split('/').slice(1) });
  }

  get routes(): readonly Route[] {
    return this.#routes.map(({ route }) => route);
  }

  /** The route, or the methods that the path knows (none: the path is unknown). */
  find(method: string, path: string): Match | { allowed: string[] } {
    const segments = path.split('/').slice(1);
    const allowed: string[] = [];
    for (const { route, segments: pattern } of this.#routes) {
      const params = match(pattern, segments);
      if (!params) continue;
      if (route.method === method) return { route, params };
      if (!allowed.includes(route.method)) allowed.push(route.method);
    }
    return { allowed };
  }
}

function match(pattern: string[], segments: string[]): Record<string, string> | undefined {
  if (pattern.length !== segments.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, part] of pattern.entries()) {
    const segment = segments[index]!;
    if (!part.startsWith(':')) {
      if (part !== segment) return undefined;
      continue;
    }
    try {
      params[part.slice(1)] = decodeURIComponent(segment);
    } catch {
      return undefined;
    }
  }
  return params;
}
