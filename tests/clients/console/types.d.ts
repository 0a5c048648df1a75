// The shapes of the console's data, for the check of its types. Browsers need none of this.

type Orders = import("../../../console/core/orders.js").Orders;
type TableService = import("../../../console/core/table-service.js").TableService;
type Job = import("../../../console/core/job.js").Job;
type JsonNumber = import("../../../console/core/json.js").JsonNumber;
type RequestError = import("../../../console/core/errors.js").RequestError;

interface Account {
  name: string;
  /** whether it is one of the server's settings, which only change there */
  isOfSettings: boolean;
  isDisabled: boolean;
  hasExtendedQueries: boolean;
}

/** closes the dialog unless it throws */
type Action = { text: string; kind?: "primary" | "danger"; act: () => Promise<unknown> | unknown };

/** `changes`: hidden where the server is read-only */
type ButtonOptions = {
  kind?: "primary" | "danger" | "quiet";
  changes?: boolean;
  label?: string;
  class?: string;
  type?: "button" | "submit";
};

type Child = Node | string | null | undefined | false;

type Clause = { join: "and" | "or"; property: string; operator: Operator; value: Value };

interface Column {
  id: string;
  title: string;
  /** a second, quiet word in the header */
  hint?: string;
  /** says in words what sorting by it sorts */
  sorting?: string;
  /** the rows come in its order, if they are sorted by it */
  isSortedByServer?: boolean;
  /** pixels */
  width?: number;
  /** aligned to the right */
  isNumber?: boolean;
  text: (row: any) => string;
  /** where a cell leads to */
  href?: (row: any) => string;
  /** classes of a cell */
  style?: (row: any) => string;
  compare?: (a: any, b: any) => number;
}

interface Cluster {
  citus: string;
  nodes: ClusterNode[];
  unused: string[];
  server: { silentNodes: number; substitutedLanes: number; bucketMapRead: string | null };
}

interface ClusterNode {
  address: string;
  role: "coordinator" | "worker";
  holdsShards: boolean;
  answers: boolean;
  reason?: string;
  inRecovery?: boolean;
  standbys?: number;
  shards?: number;
  bytes?: number;
  entitiesAbout?: number;
}

type CorsRule = { origins: string; methods: string; headers: string; exposed: string; maxAge: string };

type Cost = {
  rowsReturned: number;
  rowsLookedAt: number;
  rowsLookedAtIsExact: boolean;
  milliseconds: number;
  more: boolean;
};

type DeletedTable = {
  id: number;
  account: string;
  table: string;
  created: string;
  deleted: string;
  keptUntil: string;
  /** null if measuring took too long */
  entities: number | null;
  bytes: number | null;
  complete: boolean;
};

type DeletedTables = { keepDeleted: string; tables: DeletedTable[]; more: boolean };

type EdmType =
  "Edm.String" | "Edm.Int32" | "Edm.Int64" | "Edm.Double" | "Edm.Boolean" | "Edm.DateTime" | "Edm.Guid" | "Edm.Binary";

interface Entity {
  partitionKey: string;
  rowKey: string;
  timestamp: string;
  etag: string;
  /** without the keys and the Timestamp */
  properties: Map<string, Value>;
}

type Explanation = {
  access: string;
  /** those that name the entities to read */
  index: IndexName[] | null;
  /** the most promising choice, if the store did not use it */
  indexPassedOver: IndexName[] | null;
  summary: string;
  spans: Span[];
  spanCount: number;
  residual: string | null;
  /** why the query is refused, or what an operator can do */
  advice: string | null;
  cost?: Cost;
};

type Format = "csv" | "ndjson";

type IndexName = { property: string; kind: string };

type Inspection = {
  kind: string;
  fields: { name: string; value: string; meaning: string }[];
  stringToSign: string;
  signedBy: number | null;
  valid: boolean;
  problems: Problem[];
  action?: { name: string; allowed: boolean; code?: string; message?: string };
};

/** its values are JSON values */
type JsonObject = Map<string, any>;

type JsonValue = string | boolean | null | JsonNumber | any[] | JsonObject;

type Key = { partitionKey: string; rowKey: string };

/** `replace` and `merge` insert what is not there */
type Kind = "insert" | "replace" | "merge" | "delete";

type Language = { id: string; title: string; write: (shown: Shown, endpoint: string) => string };

type Maker = {
  <K extends keyof HTMLElementTagNameMap>(
    tag: K,
    props?: Props,
    ...children: (Child | Child[])[]
  ): HTMLElementTagNameMap[K];
  (tag: string, props?: Props, ...children: (Child | Child[])[]): HTMLElement;
};

/** what happens with entities that exist: they stay, are replaced, or merged */
type Mode = "insert" | "replace" | "merge";

type Operator = "eq" | "ne" | "gt" | "ge" | "lt" | "le" | "begins" | "endswith" | "contains" | "missing" | "present";

interface Options {
  query?: Record<string, string | number | undefined>;
  headers?: Record<string, string>;
  body?: string;
  signal?: AbortSignal;
}

interface Page {
  entities: Entity[];
  next: Token | null;
}

interface Pane {
  /** the first part of its address */
  id: string;
  title: string;
  /** its element */
  tag: string;
  load: () => Promise<unknown>;
  /** whether it shows one account */
  isOfAccount: boolean;
  /** whether the server has what it needs; always, if absent */
  isShown?: () => boolean;
  /** the pane that it is opened from, instead of the navigation */
  within?: string;
}

interface Picture {
  title: string;
  /** milliseconds */
  times: number[];
  series: Series[];
  format: (value: number) => string;
  /** What the steps of the axis are multiples of: 1024 for bytes. */
  base?: number;
}

/** `place` says in messages which one it was */
type Placed = Write & { place: string };

type Point = {
  time: string;
  requests: number;
  errors: { client: number; server: number };
  p50: number | null;
  p99: number | null;
  storeMilliseconds: number | null;
};

type Policy = { id: string; start: string; expiry: string; permission: string };

type Preferences = { hidden: string[]; widths: Record<string, number> };

type Problem = { code: string; message: string };

/** Names with a dash, and those of `ATTRIBUTES`, are attributes; all others are properties. */
type Props = { class?: string; on?: Record<string, (event: any) => void>; [name: string]: any };

interface Query {
  filter?: string;
  order?: string;
  select?: string;
  top?: number;
}

type Read = { place: string; entity?: Entity; error?: unknown };

type Route = { pane: string; account: string; table: string };

interface Series {
  name: string;
  /** null where nothing was measured */
  values: (number | null)[];
}

type Shown = { kind: "tables" | "query"; account: string; table?: string; filter?: string };

type FaultRule = {
  operation?: string | null;
  table?: string | null;
  error?: string | null;
  delay?: number | null;
  disconnect?: string | null;
  page?: number | null;
  after: number;
  times: number;
};

type CountedFaultRule = FaultRule & { matched: number; hits: number };

type Snapshot = { name: string; account: string | null; taken: string };

type Sorted = { id: string; isDown: boolean };

type Source = { service: TableService; table: string; filter: string };

type Span = { from: Key; to: Key | null; words?: string };

type StoredAccount = {
  name: string;
  disabled: boolean;
  created: string;
  rotated: string[];
  requestsPerSecond: number | null;
  extendedQueries: boolean;
};

/** as `/tables` measures it */
type Table = {
  name: string;
  created: string;
  entities: number;
  bytes: number;
  complete: boolean;
  total: TableTotal;
};

type TableTotal = { entities: number; basis: "exact" | "estimated" | "atLeast"; bytes: number };

type TableHistory = {
  account: string;
  table: string;
  points: { time: string; entities: number; bytes: number; complete: boolean }[];
};

/** where the next page begins: query options */
type Token = Record<string, string>;

type Value = { readonly type: EdmType; readonly text: string };

type Write = { kind: Kind; table: string; entity: Entity };

interface CardField {
  name: string;
  title: string;
  hint?: string;
  placeholder?: string;
  /** The text of a new card. */
  first?: string;
}

interface PropertyIndex {
  id: number;
  property: string;
  kind: string;
  state: string;
  bytes: number | null;
  uses: number | null;
  progress: string | number | null;
}
