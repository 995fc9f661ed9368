from boosted_attention.cli.main import main

main()
