/** Error body of the API (platform 10.3; certain for v1). */
export interface ErrorBody {
  errors: { type: string; message: string; attribute?: string }[];
}

/** Lists: query `page`, `per_page` (1 to 100) (platform 10.3, certain for v1). */
export interface Pagination {
  total_count: number;
  page_count: number;
  per_page: number;
  page: number;
  prev?: string | null;
  next?: string | null;
  first?: string | null;
  last?: string | null;
}

/** A reference to an object, platform 6.2. */
export interface Reference {
  id: number;
  href: string;
}
