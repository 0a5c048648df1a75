// Code for what is on the screen, for five SDKs. Names and filters become literals of each language.

/** A literal for languages whose strings are UTF-16 and know the escapes of JSON. @param {string} text */
const json = (text) =>
  JSON.stringify(text).replace(/[\u007f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** A literal for languages that have no escapes for surrogates. @param {string} text */
const plain = (text) => JSON.stringify(text);

/** @param {string[]} lines */
const joined = (...lines) => `${lines.join("\n")}\n`;

/** @type {Language["write"]} */
const python = ({ kind, account, table = "", filter = "" }, endpoint) => {
  const head = [
    "import os",
    "from azure.core.credentials import AzureNamedKeyCredential",
    "from azure.data.tables import TableServiceClient",
    "",
    `credential = AzureNamedKeyCredential(${plain(account)}, os.environ["TABLES_KEY"])`,
    `service = TableServiceClient(${plain(`${endpoint}/${account}`)}, credential=credential)`,
  ];
  if (kind === "tables") return joined(...head, "for table in service.list_tables():", "    print(table.name)");
  const query = filter ? `query_entities(${plain(filter)})` : "list_entities()";
  return joined(
    ...head,
    `table = service.get_table_client(${plain(table)})`,
    `for entity in table.${query}:`,
    "    print(entity)",
  );
};

/** @type {Language["write"]} */
const javascript = ({ kind, account, table = "", filter = "" }, endpoint) => {
  const client = kind === "tables" ? "TableServiceClient" : "TableClient";
  const options = endpoint.startsWith("http:") ? ", { allowInsecureConnection: true }" : "";
  const name = kind === "tables" ? "" : `${json(table)}, `;
  const query = filter ? `{ queryOptions: { filter: ${json(filter)} } }` : "";
  return joined(
    `import { AzureNamedKeyCredential, ${client} } from "@azure/data-tables";`,
    "",
    `const credential = new AzureNamedKeyCredential(${json(account)}, process.env.TABLES_KEY);`,
    `const client = new ${client}(${json(`${endpoint}/${account}`)}, ${name}credential${options});`,
    ...(kind === "tables"
      ? ["for await (const table of client.listTables()) console.log(table.name);"]
      : [`for await (const entity of client.listEntities(${query})) console.log(entity);`]),
  );
};

/** @type {Language["write"]} */
const dotnet = ({ kind, account, table = "", filter = "" }, endpoint) => {
  const head = [
    "using Azure.Data.Tables;",
    "",
    `var credential = new TableSharedKeyCredential(${json(account)}, Environment.GetEnvironmentVariable("TABLES_KEY"));`,
    `var service = new TableServiceClient(new Uri(${json(`${endpoint}/${account}`)}), credential);`,
  ];
  if (kind === "tables")
    return joined(...head, "await foreach (var table in service.QueryAsync())", "    Console.WriteLine(table.Name);");
  return joined(
    ...head,
    `var table = service.GetTableClient(${json(table)});`,
    `await foreach (var entity in table.QueryAsync<TableEntity>(${filter ? json(filter) : ""}))`,
    '    Console.WriteLine(string.Join(", ", entity));',
  );
};

/** @type {Language["write"]} */
const golang = ({ kind, account, table = "", filter = "" }, endpoint) => {
  const isTables = kind === "tables";
  const pager = isTables
    ? "service.NewListTablesPager(nil)"
    : filter
      ? "service.NewClient(table).NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter})"
      : "service.NewClient(table).NewListEntitiesPager(nil)";
  return joined(
    "package main",
    "",
    "import (",
    '\t"context"',
    '\t"fmt"',
    '\t"log"',
    '\t"os"',
    "",
    '\t"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"',
    ")",
    "",
    "func main() {",
    `\tcredential, err := aztables.NewSharedKeyCredential(${plain(account)}, os.Getenv("TABLES_KEY"))`,
    "\tif err != nil {",
    "\t\tlog.Fatal(err)",
    "\t}",
    `\tservice, err := aztables.NewServiceClientWithSharedKey(${plain(`${endpoint}/${account}`)}, credential, nil)`,
    "\tif err != nil {",
    "\t\tlog.Fatal(err)",
    "\t}",
    ...(isTables ? [] : [`\ttable := ${plain(table)}`]),
    ...(!isTables && filter ? [`\tfilter := ${plain(filter)}`] : []),
    `\tpages := ${pager}`,
    "\tfor pages.More() {",
    "\t\tpage, err := pages.NextPage(context.Background())",
    "\t\tif err != nil {",
    "\t\t\tlog.Fatal(err)",
    "\t\t}",
    ...(isTables
      ? ["\t\tfor _, table := range page.Tables {", "\t\t\tfmt.Println(*table.Name)", "\t\t}"]
      : ["\t\tfor _, entity := range page.Entities {", "\t\t\tfmt.Println(string(entity))", "\t\t}"]),
    "\t}",
    "}",
  );
};

/** @type {Language["write"]} */
const java = ({ kind, account, table = "", filter = "" }, endpoint) => {
  const isTables = kind === "tables";
  const options = `new ListEntitiesOptions().setFilter(${json(filter)})`;
  return joined(
    "import com.azure.core.credential.AzureNamedKeyCredential;",
    "import com.azure.data.tables.TableServiceClientBuilder;",
    ...(isTables || !filter ? [] : ["import com.azure.data.tables.models.ListEntitiesOptions;"]),
    "",
    "class Tables {",
    "    public static void main(String[] arguments) {",
    "        var service = new TableServiceClientBuilder()",
    `            .endpoint(${json(`${endpoint}/${account}`)})`,
    `            .credential(new AzureNamedKeyCredential(${json(account)}, System.getenv("TABLES_KEY")))`,
    "            .buildClient();",
    ...(isTables
      ? ["        service.listTables().forEach(table -> System.out.println(table.getName()));"]
      : [
          `        var table = service.getTableClient(${json(table)});`,
          `        table.listEntities(${filter ? `${options}, null, null` : ""})`,
          "            .forEach(entity -> System.out.println(entity.getProperties()));",
        ]),
    "    }",
    "}",
  );
};

/** @type {Language[]} */
export const LANGUAGES = [
  { id: "python", title: "Python", write: python },
  { id: "javascript", title: "JavaScript", write: javascript },
  { id: "dotnet", title: ".NET", write: dotnet },
  { id: "go", title: "Go", write: golang },
  { id: "java", title: "Java", write: java },
];
