// Starts the console: the shell shows the panes that panes.js lists.

import "./parts/app-shell.js";
