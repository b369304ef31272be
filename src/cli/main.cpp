// The `tileway` command. Exit status: 0 done, 1 the answer is no, 2 bad input.
#include <cstdio>
#include <exception>

#include "cli/command.hpp"
#include "tileway/error.hpp"

int main(int argc, char** argv) {
  CLI::App app{"Overlaps and fuses computation with collective communication, tile by tile."};
  app.set_version_flag("--version", TILEWAY_VERSION);
  app.require_subcommand(1);
  int status = tileway::cli::kDone;
  tileway::cli::add_doctor(app, status);
  tileway::cli::add_run(app, status);
  tileway::cli::add_bench(app, status);
  tileway::cli::add_explain(app, status);
  tileway::cli::add_verify(app, status);
  tileway::cli::add_explore(app, status);
  tileway::cli::add_compile(app, status);
  try {
    app.parse(argc, argv);
    return status;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tileway::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[tileway] %s\n", error.what());
    return 1;
  }
}
